package mcpauth

import (
	"net/http"
	"testing"
)

func BenchmarkAuthorize(b *testing.B) {
	for _, kind := range []string{"Bearer", "DPoP"} {
		b.Run(kind, func(b *testing.B) {
			c, err := New(serverURL, nil)
			if err != nil {
				b.Fatal(err)
			}
			t := &tokens{Access: "an-access-token", Type: kind, Issuer: asURL}
			if kind == "DPoP" {
				if t.key, err = newDPoPKey(); err != nil {
					b.Fatal(err)
				}
			}
			c.own.hold(t)
			r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, serverURL, http.NoBody)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if err := c.Authorize(b.Context(), r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
