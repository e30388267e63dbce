package fetch

import (
	"errors"
	"net/http"
	"net/url"
	"testing"
)

// TestTransport: each dial is checked, by where the address was learned.
func TestTransport(t *testing.T) {
	s := serve(t, func(http.ResponseWriter, *http.Request) {})
	nowhere, here := &url.URL{}, mustURL(t, s.URL)
	for _, test := range []struct {
		address string
		origin  *url.URL
		private bool
		made    bool
		dialled bool // the server on loopback
	}{
		{"https://example.test", nowhere, false, true, false},
		{"https://example.test", nowhere, true, true, true},
		{"https://example.test", here, false, true, true},
		{"http://example.test", nowhere, false, false, false},
		{"https://127.0.0.1", nowhere, false, false, false},
		{s.URL, here, false, true, true},
		{"https://user@example.test", nowhere, false, false, false},
	} {
		tr, err := Transport(mustURL(t, test.address), test.origin, test.private)
		if (err == nil) != test.made {
			t.Errorf("%s: %v", test.address, err)
		}
		if err != nil {
			continue
		}
		conn, err := tr.DialContext(t.Context(), "tcp", here.Host)
		if err == nil {
			conn.Close()
		}
		if (err == nil) != test.dialled || err != nil && !errors.Is(err, ErrAddress) {
			t.Errorf("%s: dial: %v", test.address, err)
		}
		if tr.Proxy != nil {
			t.Error("a proxy looks names up unchecked")
		}
	}
}
