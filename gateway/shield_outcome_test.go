package gateway_test

import (
	"bufio"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/internal/audit"
	"github.com/farcall-dev/farcall/stream"
)

// Each call through a gateway has an outcome. One that is suspended has an outcome for each of its
// requests, and one that is carried as it is has the outcome of its answer, or of the end of its
// connection.
func TestOutcomesBehindAGateway(t *testing.T) {
	for _, kind := range []string{"legacy", "modern", "raw"} {
		t.Run(kind, func(t *testing.T) {
			name := filepath.Join(t.TempDir(), "audit.jsonl")
			c := &gateway.Config{Guard: everybody()}
			c.Guard.Audit.File = name
			server := &rawLog{}
			if kind == "raw" {
				c.Upstreams = []*gateway.Upstream{{Name: "r", URL: listen(t, server.serve), Profile: "raw"}}
			} else {
				c.Upstreams = []*gateway.Upstream{newMock(kind).tcp(t, "a")}
			}
			l := newLabOf(t, nil, c)
			want := []string{`"outcome":"input_required"`, `"outcome":"ok"`}
			if kind == "raw" {
				want = want[1:]
				addr := strings.TrimPrefix(listen(t, func(conn net.Conn) {
					l.ServeStream(stream.New(conn, stream.NDJSON, nil),
						&guard.Conn{Transport: "stdio", Local: true})
				}), "tcp://")
				conn := dialTCP(t, addr)
				in := bufio.NewReader(conn)
				ask(t, conn, in, `{"jsonrpc":"2.0","id":1,"method":"math/add","params":{"a":1}}`)
				ask(t, conn, in,
					`[{"jsonrpc":"2.0","method":"math/add"},{"jsonrpc":"2.0","id":2,"method":"math/add"}]`)
				conn.Close()
			} else {
				ann := l.rounds(t, "dev")
				ann.headers = []string{as("dev")}
				ann.begin().done("Ann", "dev is Ann")
				lost := *ann
				lost.begin() // the client never comes back
			}
			if err := l.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
			raw, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			r, err := audit.Verify([]audit.Text{{Name: "a", In: strings.NewReader(string(raw))}}, nil)
			if err != nil || len(r.Findings)+len(r.Notes) > 0 || r.Open != 0 {
				t.Errorf("%v %+v\n%s", err, r, raw)
			}
			for _, w := range want {
				if !strings.Contains(string(raw), w) {
					t.Errorf("there is no %s in\n%s", w, raw)
				}
			}
		})
	}
}
