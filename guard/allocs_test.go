//go:build !race

package guard_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestHTTPAllocs bounds what a call over HTTP allocates, with the request and the body that the
// test itself makes.
func TestHTTPAllocs(t *testing.T) {
	for guarded, most := range map[string]float64{"no": 8, "yes": 10, "audited": 11} {
		h, token := benchHandler(t, guarded)
		r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1/rpc", nil)
		r.RemoteAddr = "127.0.0.1:34567"
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+token)
		w := &nowhere{header: http.Header{}}
		got := testing.AllocsPerRun(500, func() {
			again := *r
			again.Body, again.ContentLength = io.NopCloser(strings.NewReader(benchBody)),
				int64(len(benchBody))
			h.ServeHTTP(w, &again)
		})
		if !strings.Contains(string(w.last), `"result"`) {
			t.Fatalf("guarded %s: %d %s", guarded, w.status, w.last)
		}
		if got > most {
			t.Errorf("guarded %s: %v allocations, %v allowed", guarded, got, most)
		}
	}
}
