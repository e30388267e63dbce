package gateway_test

import (
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/natsrpc"
)

// The address of an upstream over NATS may have credentials for the engine, which callers and the
// log do not see. That of any other upstream may not.
func TestEngineCredentials(t *testing.T) {
	u := &gateway.Upstream{Name: "q", URL: "nats://user:s3cr3t@127.0.0.1:1/subject", Profile: "raw"}
	l := newLab(t, &gateway.Options{NATS: &natsrpc.Transport{}}, u)
	got, err := l.post(t.Context(), "/rpc/q", `{"jsonrpc":"2.0","id":1,"method":"x"}`)
	if err != nil || !strings.Contains(got.body, `"sent":"no"`) ||
		strings.Contains(got.body, "s3cr3t") {
		t.Errorf("%v, %v", got, err)
	}
	if strings.Contains(l.log.String(), "s3cr3t") {
		t.Error("the log has the password")
	}
	web := &gateway.Config{Upstreams: []*gateway.Upstream{
		{Name: "w", URL: "http://user:s3cr3t@127.0.0.1:1/mcp"},
	}}
	if err := web.Check(); err == nil || !strings.Contains(err.Error(), "it has a user or password") {
		t.Error(err)
	}
}
