package natsrpc_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/farcall-dev/farcall/natsrpc"
)

// Methods are endpoints of the service, with their schemas: a client sends params, and gets an
// answer of JSON-RPC.
func TestEndpoints(t *testing.T) {
	t.Parallel()
	at, m := engine(t), newMethods()
	listen(t, at+"/ends.test", m.handler(), &natsrpc.Options{Methods: m.Methods()})
	nc, err := nats.Connect(at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	info, err := nc.Request("$SRV.INFO.ends-test", nil, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	var is micro.Info
	if err := json.Unmarshal(info.Data, &is); err != nil {
		t.Fatal(err)
	}
	schema := ""
	for _, e := range is.Endpoints {
		if e.Subject == "ends.test.repeat" && e.Name == "repeat" {
			schema = e.Metadata["params"]
		}
	}
	if len(is.Endpoints) != len(m.Methods())+1 || !strings.Contains(schema, `"integer"`) {
		t.Errorf("%s", info.Data)
	}
	for _, c := range []struct{ method, params, want string }{
		{"repeat", `{"n":3}`, `{"jsonrpc":"2.0","result":"xxx","id":1}`},
		{"echo", `[1, 2]`, `"result":[1, 2]`},
		{"echo", ``, `"result":null`},
		{"fail", `{}`, `{"code":7,"message":"seven"}`},
		{"repeat", `{"n":"x"}`, `"code":-32602`},
		{"repeat", `{"n":`, `"code":-32700`},
		{"echo", `[1],"method":"fail"`, `"code":-32700`},
	} {
		got, err := nc.Request("ends.test."+c.method, []byte(c.params), 10*time.Second)
		if err != nil || !strings.Contains(string(got.Data), c.want) {
			t.Fatalf("%s %s: %s, %v", c.method, c.params, got.Data, err)
		}
	}
}
