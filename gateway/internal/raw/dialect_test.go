package raw

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/httprpc"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// The dialects of servers: what they answer to a call. Hybrid ones say that they speak 2.0 and send
// both members.
var dialects = map[string]struct{ result, failure string }{
	"2.0": {`{"jsonrpc":"2.0","id":%s,"result":%s}`, `{"jsonrpc":"2.0","id":%s,"error":%s}`},
	"1.0": {`{"result":%[2]s,"error":null,"id":%[1]s}`, `{"result":null,"error":%[2]s,"id":%[1]s}`},
	"hybrid": {
		`{"jsonrpc":"2.0","result":%[2]s,"error":null,"id":%[1]s}`,
		`{"jsonrpc":"2.0","result":null,"error":%[2]s,"id":%[1]s}`,
	},
}

const (
	dialectResult  = `{"n": 1.0}`
	dialectFailure = `{"code":17,"message":"no such user","data":{"a": 1.0}}`
)

// dialectAnswer is what a server of a dialect answers to a frame: "fail" fails.
func dialectAnswer(dialect string, frame []byte) []byte {
	dec := newDecoder()
	var b jsonrpc.Batch
	if err := dec.Decode(frame, &b); err != nil {
		return []byte(err.Error())
	}
	m, d := b.Messages[0], dialects[dialect]
	if string(m.Method) == "fail" {
		return fmt.Appendf(nil, d.failure, m.ID, dialectFailure)
	}
	return fmt.Appendf(nil, d.result, m.ID, dialectResult)
}

// TestDialects has clients of every transport and version call servers of every transport and
// dialect: each gets the result, or the error with what it says.
func TestDialects(t *testing.T) {
	t.Parallel()
	for dialect := range dialects {
		plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			frame, _ := io.ReadAll(r.Body)
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(dialectAnswer(dialect, frame))
		}))
		t.Cleanup(plain.Close)
		x, err := httprpc.Dial(plain.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		backs := map[string]*Options{"http": {Exchanger: x}}
		for name, dial := range overTransports(t, func(tr farcall.Transport) {
			defer tr.Close()
			for {
				frame, err := tr.Read()
				if err != nil || tr.Write(dialectAnswer(dialect, frame)) != nil {
					return
				}
			}
		}) {
			backs[name] = &Options{Dial: dial}
		}
		for back, o := range backs {
			u := open(t, o)
			for front, send := range rawFronts(t, u) {
				for version, form := range map[string]string{
					"2.0": `{"jsonrpc":"2.0","id":7,"method":%q,"params":[1]}`,
					"1.0": `{"method":%q,"params":[1],"id":7}`,
				} {
					t.Run(strings.Join([]string{version, "from", front, "to", dialect, back}, " "),
						func(t *testing.T) {
							for method, want := range map[string]string{"get": dialectResult, "fail": dialectFailure} {
								got := send(t, fmt.Sprintf(form, method))
								var answer struct {
									ID            json.RawMessage
									Result, Error json.RawMessage
								}
								if err := json.Unmarshal(got, &answer); err != nil || string(answer.ID) != "7" {
									t.Fatalf("%s: %v", got, err)
								}
								has, lacks := answer.Result, answer.Error
								if method == "fail" {
									has, lacks = lacks, has
								}
								if string(has) != want || len(lacks) > 0 && string(lacks) != "null" {
									t.Errorf("%s: %s", method, got)
								}
							}
						})
				}
			}
		}
	}
}

// rawFronts returns what sends a frame to an upstream over each transport, and returns the answer.
func rawFronts(t *testing.T, u *Upstream) map[string]func(t *testing.T, frame string) []byte {
	t.Helper()
	s := httptest.NewServer(httprpc.NewHandler(u, &httprpc.Options{RPC: &farcall.Options{V1: true}}))
	t.Cleanup(s.Close)
	fronts := map[string]func(t *testing.T, frame string) []byte{
		"http": func(t *testing.T, frame string) []byte {
			t.Helper()
			r, err := http.Post(s.URL, "application/json", strings.NewReader(frame))
			if err != nil {
				t.Fatal(err)
			}
			defer r.Body.Close()
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Fatal(err)
			}
			return body
		},
	}
	for name, dial := range overTransports(t, func(tr farcall.Transport) {
		_ = u.Pipe(context.Background(), tr)
	}) {
		fronts[name] = func(t *testing.T, frame string) []byte {
			t.Helper()
			tr, err := dial(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer tr.Close()
			if err := tr.Write([]byte(frame)); err != nil {
				t.Fatal(err)
			}
			answer, err := tr.Read()
			if err != nil {
				t.Fatal(err)
			}
			return append([]byte(nil), answer...)
		}
	}
	return fronts
}
