package httprpc_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/httprpc"
	"github.com/farcall-dev/farcall/internal/http1/http1test"
	"github.com/farcall-dev/farcall/internal/race"
	"github.com/farcall-dev/farcall/jsonrpc"
)

func gzipped(body string) string {
	var out bytes.Buffer
	z, _ := gzip.NewWriterLevel(&out, gzip.BestSpeed) // the level is valid
	_, _ = io.WriteString(z, body)
	_ = z.Close()
	return out.String()
}

// echoing returns its params.
func echoing(_ context.Context, req *farcall.Request) (any, error) { return req.Params, nil }

// recorded notes the encodings of the last exchange.
type recorded struct {
	sent, asked, answered string
	done                  chan struct{} // the exchange is over
}

func (r *recorded) around(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		r.sent, r.asked = q.Header.Get("Content-Encoding"), q.Header.Get("Accept-Encoding")
		h.ServeHTTP(w, q)
		r.answered = w.Header().Get("Content-Encoding")
		r.done <- struct{}{}
	})
}

func (r *recorded) expect(t *testing.T, sent, asked, answered string) {
	t.Helper()
	<-r.done
	if r.sent != sent || r.asked != asked || r.answered != answered {
		t.Errorf("sent %q, asked for %q, answered %q; want %q, %q, %q", r.sent, r.asked, r.answered, sent,
			asked, answered)
	}
}

// Each end compresses only when both want it; the client compresses once the server has said that
// it reads it.
func TestGzipBothWays(t *testing.T) {
	large := jsonrpc.Raw(`["` + strings.Repeat("x", 100_000) + `"]`)
	for _, test := range []struct {
		client, server   bool
		asked            string
		second, answered string
	}{
		{true, true, "gzip", "gzip", "gzip"},
		{true, false, "gzip", "", ""},
		{false, true, "", "", ""},
		{false, false, "", "", ""},
	} {
		t.Run(fmt.Sprintf("client=%v,server=%v", test.client, test.server), func(t *testing.T) {
			seen := recorded{done: make(chan struct{}, 1)}
			h := httprpc.NewHandler(farcall.HandlerFunc(echoing), &httprpc.Options{Gzip: test.server})
			c := client(t, serve(t, seen.around(h)), nil, &httprpc.Options{Gzip: test.client})
			for _, sent := range []string{"", test.second, test.second} {
				got, err := farcall.Call[jsonrpc.Raw](t.Context(), c, "echo", large)
				if err != nil || !bytes.Equal(got, large) {
					t.Fatalf("%d bytes, %v", len(got), err)
				}
				seen.expect(t, sent, test.asked, test.answered)
			}
			if err := c.Call(t.Context(), "echo", jsonrpc.Raw("[1]"), nil); err != nil {
				t.Error(err)
			}
			seen.expect(t, "", test.asked, "") // too small
		})
	}
}

// A client that was given an http.Client does not let its transport ask for gzip.
func TestGzipOfTheTransport(t *testing.T) {
	seen := recorded{done: make(chan struct{}, 1)}
	h := httprpc.NewHandler(farcall.HandlerFunc(echoing), &httprpc.Options{Gzip: true})
	c := client(t, serve(t, seen.around(h)), nil,
		&httprpc.Options{Client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}})
	if err := c.Call(t.Context(), "echo", jsonrpc.Raw(`["`+strings.Repeat("x", 10_000)+`"]`),
		nil); err != nil {
		t.Fatal(err)
	}
	seen.expect(t, "", "identity", "")
}

// A server that no longer reads gzip gets the request again as it is.
func TestGzipThatIsTakenBack(t *testing.T) {
	var off atomic.Bool
	with := httprpc.NewHandler(farcall.HandlerFunc(echoing), &httprpc.Options{Gzip: true})
	without := httprpc.NewHandler(farcall.HandlerFunc(echoing), nil)
	c := client(t, serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if off.Load() {
			without.ServeHTTP(w, r)
			return
		}
		with.ServeHTTP(w, r)
	})), nil, &httprpc.Options{Gzip: true})
	large := jsonrpc.Raw(`["` + strings.Repeat("x", 10_000) + `"]`)
	for i := range 4 {
		off.Store(i >= 2)
		if got, err := farcall.Call[jsonrpc.Raw](t.Context(), c, "echo", large); err != nil ||
			!bytes.Equal(got, large) {
			wire := new(jsonrpc.Error)
			errors.As(err, &wire)
			t.Fatalf("call %d: %v %s", i, err, wire.Data)
		}
	}
}

// What the server makes of encodings. A bomb is refused by its size when decompressed.
func TestContentEncoding(t *testing.T) {
	t.Parallel()
	const limit = 1 << 20
	on := serve(t,
		httprpc.NewHandler(farcall.HandlerFunc(echoing), &httprpc.Options{Gzip: true, MaxMessage: limit}))
	off := serve(t, httprpc.NewHandler(farcall.HandlerFunc(echoing), nil))
	call := `{"jsonrpc":"2.0","method":"echo","params":["x"],"id":1}`
	bomb := gzipped(
		`{"jsonrpc":"2.0","method":"echo","params":["` + strings.Repeat("x", race.Fewer(100<<20)) +
			`"],"id":1}`)
	nothing := gzipped("")
	for name, test := range map[string]struct {
		url, body, encoding string
		status              int
		text                string
	}{
		"gzip":             {on, gzipped(call), "gzip", 200, `"result":["x"]`},
		"GZIP":             {on, gzipped(call), "GZIP", 200, `"result":["x"]`},
		"gzip that is off": {off, gzipped(call), "gzip", 415, "send the body as it is"},
		"br":               {on, call, "br", 415, "send gzip, or the body as it is"},
		"two":              {on, gzipped(gzipped(call)), "gzip, gzip", 415, "send gzip"},
		"bomb":             {on, bomb, "gzip", 413, `"maxSize":1048576`},
		"no gzip":          {on, call, "gzip", 400, "not valid gzip"},
		"empty":            {on, "", "gzip", 400, "not valid gzip"},
		"cut off":          {on, gzipped(call)[:40], "gzip", 400, "could not be read"},
		"something after":  {on, gzipped(call) + "x", "gzip", 400, "not valid gzip"},
		"two members":      {on, gzipped(call) + nothing, "gzip", 400, "not valid gzip"},
	} {
		t.Run(name, func(t *testing.T) {
			status, header, text := request(t, http.MethodPost, test.url, test.body,
				"Content-Type: application/json", "Content-Encoding: "+test.encoding)
			if status != test.status || !strings.Contains(text, test.text) {
				t.Errorf("%d %.200s, want %d %s", status, text, test.status, test.text)
			}
			if want := map[string]string{
				on: "gzip", off: "identity",
			}[test.url]; header.Get("Accept-Encoding") != want {
				t.Errorf("it accepts %q, want %q", header.Get("Accept-Encoding"), want)
			}
		})
	}
}

// An answer is compressed for clients that accept it, and for those alone.
func TestAcceptEncoding(t *testing.T) {
	h := httprpc.NewHandler(farcall.HandlerFunc(echoing), &httprpc.Options{Gzip: true})
	body := `{"jsonrpc":"2.0","method":"echo","params":["` + strings.Repeat("x", 10_000) + `"],"id":1}`
	for accept, want := range map[string]string{
		"gzip": "gzip", "deflate, GZIP;q=0.5": "gzip", "*": "gzip", "br, *;q=0.1": "gzip",
		"gzip; q=1.0": "gzip",
		"":            "", "identity": "", "br": "", "gzip;q=0": "", "gzip; q=0.000, *": "", "*;q=0": "",
		"xgzip": "",
	} {
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/",
			strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept-Encoding", accept)
		h.ServeHTTP(w, r)
		if got := w.Header().Get("Content-Encoding"); got != want ||
			w.Header().Get("Vary") != "Accept-Encoding" {
			t.Errorf("%q: got %q, want %q, Vary %q", accept, got, want, w.Header().Get("Vary"))
		}
	}
}

// Answers that a client did not ask for so, or that are larger than they look, fail with what is
// wrong.
func TestHostileEncodingsOfAnswers(t *testing.T) {
	race.Skip(t, "what reads answers is in every other test")
	bomb := gzipped(`{"jsonrpc":"2.0","id":1,"result":"` + strings.Repeat("x", 100<<20) + `"}`)
	for name, test := range map[string]struct {
		encoding, body, want string
		on                   bool
	}{
		"not asked": {"br", "x", "not asked for", false},
		"br":        {"br", "x", `"br"`, true},
		"bomb, off": {"gzip", bomb, "more than 1048576 bytes", false},
		"bomb":      {"gzip", bomb, "more than 1048576 bytes", true},
		"no gzip":   {"gzip", `{"jsonrpc":"2.0","id":1,"result":1}`, "not valid gzip", true},
	} {
		t.Run(name, func(t *testing.T) {
			url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.Header().Set("Content-Encoding", test.encoding)
				_, _ = io.WriteString(w, test.body)
			}))
			err := client(t, url, nil,
				&httprpc.Options{Gzip: test.on, MaxMessage: 1 << 20}).Call(t.Context(), "m", nil, nil)
			if !errors.Is(err, farcall.ErrProtocol) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// Both ends compress what is large enough.
func ExampleOptions_gzip() {
	mux := farcall.NewMux()
	farcall.Handle(mux, "repeat", func(_ context.Context, n int) (string, error) {
		return strings.Repeat("far", n), nil
	})
	server := http1test.NewServer(httprpc.NewHandler(mux, &httprpc.Options{Gzip: true}))
	defer server.Close()

	x, err := httprpc.Dial(server.URL, &httprpc.Options{Gzip: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	peer := farcall.NewClient(x, nil, nil)
	defer peer.Close()
	text, err := farcall.Call[string](context.Background(), peer, "repeat", []int{10_000})
	fmt.Println(len(text), err)
	// Output: 30000 <nil>
}
