package target

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall"
)

func TestParse(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"http://h:1/x?y=1", "http://h:1/x?y=1"},
		{"http://h", "http://h/rpc"},
		{"http://h/", "http://h/"},
		{"HTTPS://h", "https://h/rpc"},
		{"ws://h:1", "ws://h:1/rpc/ws"},
		{"wss://h/ws", "wss://h/ws"},
		{"tcp://h:1", "tcp://h:1"},
		{"tcp://[::1]:1?framing=header", "tcp://[::1]:1?framing=header"},
		{"tls://h:1?framing=line", "tls://h:1"},
		{"tls://h:1?framing=raw", "tls://h:1?framing=raw"},
		{"unix:/run/a.sock", "unix:/run/a.sock"},
		{"unix:///run/a.sock?framing=header", "unix:/run/a.sock?framing=header"},
		{"unix:a.sock", "unix:a.sock"},
		{"nats://h/a.b", "nats://h/a.b/rpc"},
		{"nats+tls://u:secret@h:4222/a/mcp", "nats+tls://u:xxxxx@h:4222/a/mcp"},
		{"nats://h/a/", "nats://h/a/rpc"},
		{"npipe:farcall?framing=raw", "npipe:farcall?framing=raw"},
		{"127.0.0.1:7331", "http://127.0.0.1:7331/rpc"},
		{"localhost:7331/api", "http://localhost:7331/api"},
		{"[::1]:7331", "http://[::1]:7331/rpc"},
		{":7331", "http://localhost:7331/rpc"},
	} {
		got, err := Parse(c.in)
		if err != nil {
			t.Errorf("Parse(%q): %v", c.in, err)
			continue
		}
		got.DefaultPath("")
		if got.String() != c.want {
			t.Errorf("Parse(%q) = %s, want %s", c.in, got, c.want)
		}
	}
}

func TestParseErrors(t *testing.T) {
	for in, want := range map[string]string{
		"":                      "neither a URL nor host:port",
		"localhost":             "neither a URL nor host:port",
		"math/add":              "neither a URL nor host:port",
		`{"a":1}`:               "neither a URL nor host:port",
		"ftp://h":               `no transport "ftp"`,
		"http://":               "no host",
		"http://%zz":            "not a URL",
		"tcp://h":               "needs a host and a port",
		"tcp://h:1/x":           "no path",
		"tcp://h:1?framing=len": "framing=header",
		"unix:":                 "no path",
		"npipe:":                "no path",
		"nats://h":              "no subject",
		"nats://h/":             "no subject",
		"nats://h/a.*":          "no subject",
		"unix:/a?x=1":           "framing=header",
	} {
		_, err := Parse(in)
		bad, ok := errors.AsType[*Error](err)
		if !ok || bad.Text == "" && in != "" || !strings.Contains(bad.Why, want) {
			t.Errorf("Parse(%q): %v, want %q", in, err, want)
		}
	}
}

// TestAddTransport adds a transport, which takes one row.
func TestAddTransport(t *testing.T) {
	mine, theirs := farcall.Pipe()
	mux := farcall.NewMux()
	farcall.Handle(mux, "double", func(_ context.Context, n int) (int, error) { return 2 * n, nil })
	server := farcall.NewPeer(theirs, mux, nil)
	t.Cleanup(func() { _ = server.Close() })
	table := append(Standard(), &Scheme{
		Names: []string{"memory"}, Kind: WebSocket, Form: "://NAME", Help: "memory://NAME",
		Parse: parseURL,
		Dial:  func(context.Context, *Target, *Options) (farcall.Transport, error) { return mine, nil },
	})
	at, err := table.Parse("MEMORY://here")
	if err != nil || at.String() != "memory://here" || !slices.Contains(table.Names(), "memory") ||
		!slices.Contains(table.Forms(), "memory://NAME") {
		t.Fatal(at, err, table.Names(), table.Forms())
	}
	conn, err := at.Dial(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	client := farcall.NewPeer(conn, nil, nil)
	t.Cleanup(func() { _ = client.Close() })
	if n, err := farcall.Call[int](t.Context(), client, "double", []int{21}); n != 42 || err != nil {
		t.Error(n, err)
	}
}

func TestKindsRefuse(t *testing.T) {
	for text, use := range map[string]func(*Target) error{
		"http://h":    func(at *Target) error { _, err := at.Dial(t.Context(), nil); return err },
		"ws://h":      func(at *Target) error { _, err := at.Exchange(nil); return err },
		"wss://h":     func(at *Target) error { _, err := at.Open(t.Context(), nil); return err },
		"unix:/no/no": func(at *Target) error { _, err := at.Dial(t.Context(), nil); return err },
	} {
		at, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if use(at) == nil {
			t.Errorf("%s: no error", text)
		}
	}
	if _, err := Child(nil).Dial(t.Context(), nil); err == nil {
		t.Error("a command without a program was started")
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"http://h", "tcp://h:1?framing=header", "unix:/a", ":1",
		"ws://u:p@h/x", "unix:////", "unix:////run/x.sock", "unix://://",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		at, err := Parse(text)
		if err != nil {
			if !errors.As(err, new(*Error)) {
				t.Errorf("%T", err)
			}
			return
		}
		if at.URL != nil {
			return // of a URL the password is left out
		}
		again, err := Parse(at.String())
		if err != nil || again.String() != at.String() {
			t.Errorf("%q is written %q, which is read as %v, %v", text, at, again, err)
		}
	})
}

func TestTargetHidesPassword(t *testing.T) {
	got, err := Parse("http://ada:secret@h/x")
	if err != nil || strings.Contains(got.String(), "secret") {
		t.Errorf("%s, %v", got, err)
	}
}
