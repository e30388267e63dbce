package farcall_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/stream"
)

// An answer that is not read, for whatever reason, ends the call that it is for, and no other,
// where it says in its beginning which one that is. Otherwise it ends all calls, and none waits for
// ever.
func TestAnswersThatAreNotRead(t *testing.T) {
	long := strings.Repeat("x", 200<<10)
	limit := &stream.Options{MaxMessage: 100 << 10}
	for name, test := range map[string]struct {
		answer  string          // to the second of three calls
		framing stream.Framing  // of both ends
		options *stream.Options // of the client
		others  bool            // the others get their answers
	}{
		"too large": {
			`{"jsonrpc":"2.0","id":%s,"result":"` + long + `"}`, stream.NDJSON,
			limit, true,
		},
		"too large error": {
			`{"id":%s,"error":{"code":1,"message":"` + long + `"}}`,
			stream.NDJSON, limit, true,
		},
		"too large, header": {
			`{"jsonrpc":"2.0","id":%s,"result":"` + long + `"}`, stream.Header,
			limit, true,
		},
		"too large, Raw": {
			`{"jsonrpc":"2.0","id":%s,"result":"` + long + `"}`, stream.Raw,
			limit, true,
		},
		"too large, id at the end": {
			`{"jsonrpc":"2.0","result":"` + long + `","id":%s}`, stream.NDJSON,
			limit, false,
		},
		"no memory": {
			`{"jsonrpc":"2.0","id":%s,"result":"` + long + `"}`, stream.NDJSON,
			&stream.Options{Budget: farcall.NewBudget(100<<10, 0)}, true,
		},
		"no JSON": {
			`{"jsonrpc":"2.0","id":%s,"result":"` + "\xff" + `"}`, stream.NDJSON,
			nil, true,
		},
		"no JSON, id at the end": {
			`{"jsonrpc":"2.0","result":"` + "\xff" + `","id":%s}`, stream.NDJSON,
			nil, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ours, theirs := net.Pipe()
				client := farcall.NewPeer(stream.New(ours, test.framing, test.options), nil, nil)
				defer client.Close()
				server := stream.New(theirs, test.framing, nil)
				defer server.Close()
				var results [3]chan error
				for i := range results {
					results[i] = make(chan error, 1)
					go func() { results[i] <- client.Call(t.Context(), fmt.Sprint(i), nil, nil) }()
				}
				ids := map[string]string{}
				for range results {
					frame, err := server.Read()
					var m struct {
						ID     json.RawMessage
						Method string
					}
					if err != nil || json.Unmarshal(frame, &m) != nil {
						t.Fatal(err, string(frame))
					}
					ids[m.Method] = string(m.ID)
				}
				synctest.Wait()
				write := func(answer, call string) {
					if err := server.Write(fmt.Appendf(nil, answer, ids[call])); err != nil {
						t.Error(err)
					}
				}
				go func() {
					write(test.answer, "1")
					write(`{"jsonrpc":"2.0","id":%s,"result":1}`, "0")
					write(`{"jsonrpc":"2.0","id":%s,"result":1}`, "2")
				}()
				for i, result := range results {
					synctest.Wait()
					select {
					case err := <-result:
						if wire := (*jsonrpc.Error)(nil); (err == nil) != (test.others && i != 1) ||
							errors.As(err, &wire) {
							t.Errorf("call %d: %v", i, err)
						}
					default:
						t.Errorf("call %d hangs", i)
					}
				}
			})
		})
	}
}

// A request that is not read is answered under its id, where it is known, so that the caller knows
// which of its calls that was. What is no JSON has none.
func TestRequestsThatAreNotRead(t *testing.T) {
	long := strings.Repeat("x", 200<<10)
	for name, test := range map[string]struct{ request, id string }{
		"a call": {
			`{"jsonrpc":"2.0","id":"a","method":"m","params":["` + long + `"]}`,
			`"a"`,
		},
		"a notification": {`{"jsonrpc":"2.0","method":"m","params":["` + long + `"]}`, `null`},
		"an id at the end": {
			`{"jsonrpc":"2.0","method":"m","params":["` + long + `"],"id":1}`,
			`null`,
		},
		"a batch": {
			`[{"jsonrpc":"2.0","id":"a","method":"m","params":["` + long + `"]}]`,
			`null`,
		},
		"no JSON":   {`{"jsonrpc":"2.0","id":"a","method":"m","params":[}`, `null`},
		"a long id": {`{"id":"` + long + `","method":"m"}`, `null`},
		"the call of an object": {
			`{"jsonrpc":"2.0","id":{},"method":"m","params":["` + long + `"]}`,
			`null`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := net.Pipe()
			p := farcall.NewPeer(stream.New(theirs, stream.NDJSON, &stream.Options{MaxMessage: 100 << 10}),
				farcall.NewMux(), nil)
			defer p.Close()
			defer ours.Close()
			go io.WriteString(ours, test.request+"\n")
			line, err := bufio.NewReader(ours).ReadString('\n')
			if err != nil || !strings.Contains(line, `"id":`+test.id) || !strings.Contains(line, `"error"`) {
				t.Errorf("%.200s %v, want the id %s", line, err, test.id)
			}
		})
	}
}
