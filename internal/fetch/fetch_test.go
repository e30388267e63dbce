package fetch

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
)

func serve(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

// trusting returns a client that trusts the certificate of s, which is for example.com, and knows
// names.
func trusting(t *testing.T, s *httptest.Server, names map[string][]string) *Client {
	t.Helper()
	theirs, _ := s.Client().Transport.(*http.Transport)
	c := New(&Options{
		HTTP:    &http.Client{Transport: &http.Transport{TLSClientConfig: theirs.TLSClientConfig}},
		Timeout: 2 * time.Second,
	})
	c.resolver = resolver(t, names)
	return c
}

func port(t *testing.T, s *httptest.Server) string {
	t.Helper()
	return ":" + mustURL(t, s.URL).Port()
}

func TestGet(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Accept", r.Header.Get("Accept"))
		w.WriteHeader(http.StatusTeapot)
		fmt.Fprint(w, `{"a":1}`)
	})
	body, header, status, err := New(nil).Get(t.Context(), nil, s.URL)
	if err != nil || string(body) != `{"a":1}` || status != http.StatusTeapot ||
		header.Get("X-Accept") != "application/json" {
		t.Errorf("%q %v %d %v", body, header, status, err)
	}
}

// Names lead to addresses only when they are looked up: those are refused as they are dialled.
func TestNames(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "secret")
	}))
	t.Cleanup(s.Close)
	c := trusting(t, s, map[string][]string{
		"example.com":   {"127.0.0.1"},
		"sub.test":      {"127.0.0.1"},
		"ten.test":      {"10.0.0.1"},
		"metadata.test": {"169.254.169.254"},
		"mapped.test":   {"::ffff:10.0.0.1"},
		"nat64.test":    {"64:ff9b::7f00:1"},
		"6to4.test":     {"2002:7f00:1::1"},
		"unspec.test":   {"0.0.0.0"},
		"unspec6.test":  {"::"},
		"ula.test":      {"fd00::1"},
		"2130706433":    {"127.0.0.1"}, // as a C library reads it
		"0x7f000001":    {"127.0.0.1"},
		"127.1":         {"127.0.0.1"},
	})
	evil := mustURL(t, "https://evil.test/mcp")
	for _, name := range []string{
		"example.com", "sub.test", "ten.test", "metadata.test", "mapped.test", "nat64.test", "6to4.test",
		"unspec.test", "unspec6.test", "ula.test", "2130706433", "0x7f000001", "127.1",
	} {
		_, _, _, err := c.Get(t.Context(), evil, "https://"+name+port(t, s)+"/a")
		// Go looks names up that are numbers only with the help of a C library.
		if numeric := name == "2130706433" || name == "127.1"; err == nil ||
			!numeric && !errors.Is(err, ErrAddress) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// The same server is reached by who may.
	for _, origin := range []*url.URL{
		nil, mustURL(t, "https://example.com/"),
		mustURL(t, "http://localhost/"),
	} {
		body, _, _, err := c.Get(t.Context(), origin, "https://example.com"+port(t, s))
		if err != nil || string(body) != "secret" {
			t.Errorf("from %v: %q %v", origin, body, err)
		}
	}
	// But what it has connected does not serve who may not.
	if _, _, _, err := c.Get(t.Context(), evil, "https://example.com"+port(t, s)); !errors.Is(err,
		ErrAddress) {
		t.Errorf("by another's connection: %v", err)
	}
}

// A name that was public when it was looked up first, and leads to loopback afterwards.
func TestRebinding(t *testing.T) {
	asked := false
	s := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		asked = true
	}))
	t.Cleanup(s.Close)
	// 3ffe::/16 is not assigned (RFC 3701)
	c := trusting(t, s, map[string][]string{"example.com": {"3ffe::1", "127.0.0.1"}})
	c.timeout = 200 * time.Millisecond
	evil := mustURL(t, "https://evil.test/")
	_, _, _, err := c.Get(t.Context(), evil, "https://example.com"+port(t, s))
	if err == nil || errors.Is(err, ErrAddress) {
		t.Errorf("as long as it is public: %v", err)
	}
	for range 3 {
		if _, _, _, err = c.Get(t.Context(), evil, "https://example.com"+port(t, s)); !errors.Is(err,
			ErrAddress) {
			t.Errorf("rebound: %v", err)
		}
	}
	if asked {
		t.Error("the server on loopback was asked")
	}
}

func TestRedirects(t *testing.T) {
	other := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("the other host was asked") })
	var self string
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		to := map[string]string{
			"/three": "/two", "/two": "/one", "/one": self + "/end", "/four": "/three", "/loop": "/loop",
			"/other": other.URL, "/private": "http://10.0.0.1/",
			"/metadata": "http://169.254.169.254/latest/meta-data/",
			"/public":   "https://example.com/", "/user": strings.Replace(self, "//", "//u:p@", 1) + "/end",
			"/file": "file:///etc/passwd",
			"/name": strings.Replace(self, "127.0.0.1", "localhost", 1) + "/end",
		}[r.URL.Path]
		if to == "" {
			fmt.Fprint(w, "end")
			return
		}
		w.Header().Set("Location", to)
		w.WriteHeader(http.StatusTemporaryRedirect)
	})
	self = s.URL
	c := New(&Options{Timeout: 2 * time.Second})
	for _, path := range []string{"/end", "/one", "/two", "/three"} {
		if body, _, _, err := c.Get(t.Context(), nil, s.URL+path); err != nil || string(body) != "end" {
			t.Errorf("%s: %q %v", path, body, err)
		}
	}
	for _, path := range []string{
		"/four", "/loop", "/other", "/private", "/metadata", "/public",
		"/user", "/file", "/name",
	} {
		if _, _, _, err := c.Get(t.Context(), nil, s.URL+path); !errors.Is(err, ErrAddress) {
			t.Errorf("%s: %v", path, err)
		}
	}
	// A body is sent once.
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/one",
		strings.NewReader("secret"))
	resp, err := c.Do(r, nil)
	if err != nil || resp.StatusCode != http.StatusTemporaryRedirect {
		t.Fatal(resp, err)
	}
	resp.Body.Close()
}

func TestRedirectToPlain(t *testing.T) {
	plain := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("asked in the clear") })
	s := httptest.NewTLSServer(http.RedirectHandler(plain.URL, http.StatusFound))
	t.Cleanup(s.Close)
	c := trusting(t, s, nil)
	if _, _, _, err := c.Get(t.Context(), nil, s.URL); !errors.Is(err, ErrAddress) {
		t.Error(err)
	}
}

func TestSize(t *testing.T) {
	const limit = 1000
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	io.CopyN(z, zeros{}, 2<<20)
	z.Close()
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/exact":
			w.Write(make([]byte, limit))
		case "/more":
			w.Write(make([]byte, limit+1))
		case "/chunks":
			for range 10 {
				w.Write(make([]byte, limit/5))
				w.(http.Flusher).Flush()
			}
		case "/endless":
			for r.Context().Err() == nil {
				w.Write(make([]byte, limit))
			}
		case "/gzip":
			w.Header().Set("Content-Encoding", "gzip")
			w.Write(bomb.Bytes())
		case "/header":
			w.Header().Set("X-Long", strings.Repeat("a", maxHeaderBytes))
		}
	})
	c := New(&Options{MaxBytes: limit})
	if body, _, _, err := c.Get(t.Context(), nil, s.URL+"/exact"); err != nil || len(body) != limit {
		t.Errorf("exact: %d %v", len(body), err)
	}
	for _, path := range []string{"/more", "/chunks", "/endless", "/gzip"} {
		if body, _, _, err := c.Get(t.Context(), nil, s.URL+path); !errors.Is(err, ErrTooLarge) ||
			body != nil {
			t.Errorf("%s: %d bytes, %v", path, len(body), err)
		}
	}
	if _, _, _, err := c.Get(t.Context(), nil, s.URL+"/header"); err == nil {
		t.Error("a long header passed")
	}
	if _, _, _, err := New(nil).Get(t.Context(), nil, s.URL+"/gzip"); !errors.Is(err, ErrTooLarge) {
		t.Errorf("the default: %v", err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestLength is about answers with a Content-Length that is not true.
func TestLength(t *testing.T) {
	for _, test := range []struct {
		answer, want string
		err          error
	}{
		{"Content-Length: 100\r\n\r\nshort", "", io.ErrUnexpectedEOF},
		{"Content-Length: 2\r\n\r\nlonger", "lo", nil},
		{"Content-Length: 2000000\r\n\r\n{}", "", ErrTooLarge},
		{"Content-Length: 99999999999999999999\r\n\r\n{}", "", nil},
		{"Content-Length: -1\r\n\r\n{}", "", nil},
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			conn, err := l.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			conn.Read(make([]byte, 4096))
			io.WriteString(conn, "HTTP/1.1 200 OK\r\n"+test.answer)
		}()
		body, _, _, err := New(nil).Get(t.Context(), nil, "http://"+l.Addr().String())
		l.Close()
		<-done
		if string(body) != test.want || test.err != nil && !errors.Is(err, test.err) ||
			test.want == "" && err == nil {
			t.Errorf("%q: %q %v", test.answer, body, err)
		}
	}
}

func TestTimeout(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			w.Write([]byte("{"))
			w.(http.Flusher).Flush()
		}
		<-r.Context().Done()
	})
	c := New(&Options{Timeout: 30 * time.Millisecond})
	for _, path := range []string{"/never", "/slow"} {
		if _, _, _, err := c.Get(t.Context(), nil, s.URL+path); !errors.Is(err,
			context.DeadlineExceeded) {
			t.Errorf("%s: %v", path, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, _, err := New(nil).Get(ctx, nil, s.URL); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestHTTP(t *testing.T) {
	asked := ""
	given := roundTripper(func(r *http.Request) (*http.Response, error) {
		asked = r.URL.String()
		return &http.Response{
			StatusCode: http.StatusOK, Body: io.NopCloser(zeros{}), ContentLength: -1,
			Request: r,
		}, nil
	})
	c := New(&Options{HTTP: &http.Client{Transport: given}})
	if _, _, _, err := c.Get(t.Context(), nil, "https://example.com/a?b"); !errors.Is(err,
		ErrTooLarge) || asked != "https://example.com/a?b" {
		t.Errorf("%q %v", asked, err)
	}
	asked = ""
	if _, _, _, err := c.Get(t.Context(), mustURL(t, "https://evil.test"),
		"https://10.0.0.1/"); !errors.Is(err, ErrAddress) || asked != "" {
		t.Errorf("an address that says what it is: %q %v", asked, err)
	}

	for name, o := range map[string]*http.Client{
		"default":      nil,
		"no transport": {},
		"certificates": {Transport: &http.Transport{TLSClientConfig: &tls.Config{ServerName: "a"}}},
	} {
		c := New(&Options{HTTP: o})
		tr, ok := c.transport(reach(public)).(*http.Transport)
		if !ok || tr.Proxy != nil || tr.DialContext == nil || c.given != nil {
			t.Errorf("%s: the dialer is not ours, or a proxy is used", name)
		}
		if c.transport(reach(public)) == c.transport(everywhere) {
			t.Errorf("%s: reaches share a transport", name)
		}
	}
	own := &http.Transport{Proxy: http.ProxyFromEnvironment}
	if c := New(&Options{HTTP: &http.Client{Transport: own}}); c.given != own {
		t.Error("a transport with a proxy was not left alone")
	}
}

// Errors have nothing of an address that may be secret.
func TestErrors(t *testing.T) {
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) })
	for _, address := range []string{
		s.URL + "/a?key=hunter2", "https://user:hunter2@example.com/",
		"https://user:hunter2@exa mple/%zz",
		"http://example.com/?hunter2#hunter2",
	} {
		_, _, _, err := New(nil).Get(t.Context(), nil, address)
		if err == nil || strings.Contains(fmt.Sprintf("%v %+v", err, err), "hunter2") {
			t.Errorf("%s: %v", address, err)
		}
	}
}
