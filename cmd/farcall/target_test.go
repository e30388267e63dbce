package main

import (
	"errors"
	"strings"
	"testing"
)

func TestParseTarget(t *testing.T) {
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
		{"127.0.0.1:7331", "http://127.0.0.1:7331/rpc"},
		{"localhost:7331/api", "http://localhost:7331/api"},
		{"[::1]:7331", "http://[::1]:7331/rpc"},
		{":7331", "http://localhost:7331/rpc"},
	} {
		got, err := parseTarget(c.in)
		if err != nil {
			t.Errorf("parseTarget(%q): %v", c.in, err)
		} else if got.String() != c.want {
			t.Errorf("parseTarget(%q) = %s, want %s", c.in, got, c.want)
		}
	}
}

func TestParseTargetErrors(t *testing.T) {
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
		"unix:/a?x=1":           "framing=header",
	} {
		_, err := parseTarget(in)
		var exit *exitError
		if !errors.As(err, &exit) || exit.code != exitUsage || exit.hint == "" || !strings.Contains(err.Error(), want) {
			t.Errorf("parseTarget(%q): %v, want %q", in, err, want)
		}
	}
}

func TestTargetHidesPassword(t *testing.T) {
	got, err := parseTarget("http://ada:secret@h/x")
	if err != nil || strings.Contains(got.String(), "secret") {
		t.Errorf("%s, %v", got, err)
	}
}
