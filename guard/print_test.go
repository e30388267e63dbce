package guard_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/guard"
)

// However a configuration is printed, no secret is in it.
func TestNothingPrintsSecrets(t *testing.T) {
	now := newClock()
	a := newAuthority(t, "1")
	token := a.token(now.Now(), nil)
	c := everyWay(a, false)
	var seen *guard.Principal
	var inside context.Context
	g := newGuard(t, c, &guard.Options{Now: now.Now})
	mux := farcall.NewMux()
	t.Setenv("FARCALL_TEST_TOKEN", token)
	c.Stdio.TokenEnv = "FARCALL_TEST_TOKEN"
	reload(t, g, c)
	mux.Handle("who", farcall.HandlerFunc(func(ctx context.Context, _ *farcall.Request) (any, error) {
		seen, inside = guard.From(ctx), ctx
		return "", nil
	}))
	ours, theirs := farcall.Pipe()
	server := farcall.NewPeer(theirs, mux,
		&farcall.Options{
			Interceptors: []farcall.Interceptor{g.Interceptor(&guard.Conn{Transport: "stdio"})},
		})
	client := farcall.NewPeer(ours, nil, nil)
	defer server.Close()
	defer client.Close()
	expect(t, "who", ask(t, client, "who", nil), "")
	if seen.Token() != token {
		t.Fatal("its token is not there for an exchange")
	}
	var log bytes.Buffer
	for _, h := range []slog.Handler{slog.NewTextHandler(&log, nil), slog.NewJSONHandler(&log, nil)} {
		slog.New(h).Info("x", "principal", seen, "value", *seen, "config", c, "signers", c.Signatures,
			"explanation", g.Explain(seen, nil, &guard.Call{Method: "who"}))
	}
	for _, v := range []any{
		seen, *seen, c, *c, c.Signatures, c.Signatures[0], &c.Signatures[0],
		guard.Conn{Principal: seen},
		&guard.Conn{Principal: seen}, inside,
	} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
			fmt.Fprintf(&log, verb+"\n", v)
		}
	}
	for _, canary := range []string{token, secret} {
		if i := strings.Index(log.String(), canary); i >= 0 {
			t.Errorf("…%s…", log.String()[max(0, i-300):i])
		}
	}
	if seen.String() != issuer+"|alice" || !seen.HasRole("builder") || !seen.HasScope("read") {
		t.Errorf("%v", seen)
	}
}
