package main

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestServeGzip: answers are compressed where --gzip says so, in the playground and in a gateway.
func TestServeGzip(t *testing.T) {
	t.Parallel()
	play := serve(t, "--listen", "127.0.0.1:0", "--log", "off", "--gzip")
	upstream := "play=" + play.addrs[0] + "/rpc"
	for name, c := range map[string]struct {
		s    *served
		want string
	}{
		"playground": {play, "gzip"},
		"gateway": {
			serve(t, "--listen", "127.0.0.1:0", "--log", "off", "--upstream", upstream, "--gzip"), "gzip",
		},
		"gateway off": {serve(t, "--listen", "127.0.0.1:0", "--log", "off", "--upstream", upstream), ""},
	} {
		body := `{"jsonrpc":"2.0","id":1,"method":"echo","params":["` + strings.Repeat("a", 2000) + `"]}`
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.s.addrs[0]+"/rpc",
			strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header = http.Header{
			"Content-Type": {"application/json"}, "Accept": {"application/json"},
			"Accept-Encoding": {"gzip"},
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if encoding := answer.Header.Get("Content-Encoding"); encoding != c.want ||
			answer.StatusCode != http.StatusOK || (len(got) < 1000) != (c.want == "gzip") {
			t.Errorf("%s: status %d, %d bytes in %q: %.200s", name, answer.StatusCode, len(got),
				encoding, got)
		}
	}
}
