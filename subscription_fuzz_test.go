package farcall_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// FuzzEvent reads what a server may send as the answer to a subscription and as its events.
func FuzzEvent(f *testing.F) {
	f.Add(`"0x1"`, `{"subscription":"0x1","result":1}`)
	f.Add(`7`, `{"subscription":7,"result":{},"dropped":3}`)
	f.Add(`"\u0030"`, `{"subscription":"0","end":true}`)
	f.Add(`"0x1"`, `{"subscription":"0x1","error":{"code":1,"message":"m"}}`)
	f.Add(`null`, `[1]`)
	f.Add(`"a"`, `{"subscription":"a","error":7,"dropped":-1}`)
	f.Fuzz(func(t *testing.T, id, params string) {
		if jsonrpc.Valid([]byte(id)) != nil || jsonrpc.Valid([]byte(params)) != nil {
			return
		}
		synctest.Test(t, func(t *testing.T) {
			a, b := farcall.Pipe()
			p := farcall.NewPeer(b, nil, nil)
			defer p.Close()
			go func() {
				for {
					frame, err := a.Read()
					if err != nil {
						return
					}
					switch {
					case strings.Contains(string(frame), `"unsubscribe"`):
						_ = a.Write([]byte(`{"jsonrpc":"2.0","result":true,"id":2}`))
					case strings.Contains(string(frame), `"subscribe"`):
						_ = a.Write([]byte(`{"jsonrpc":"2.0","result":`+id+`,"id":1}`),
							[]byte(`{"jsonrpc":"2.0","method":"subscription","params":`+params+`}`))
					}
				}
			}()
			sub, err := farcall.Subscribe[jsonrpc.Raw](t.Context(), p, "x", nil)
			if err != nil {
				if !errors.Is(err, farcall.ErrProtocol) {
					t.Errorf("%q: %v", id, err)
				}
				return
			}
			synctest.Wait()
			if st := p.Stats(); st.DroppedEvents > 1 {
				t.Errorf("%+v", st)
			}
			if err := sub.Close(); err != nil {
				t.Errorf("%q %q: %v", id, params, err)
			}
			for _, err := range sub.Events() {
				if _, ok := errors.AsType[*jsonrpc.Error](err); !ok {
					t.Errorf("%q %q: %v", id, params, err)
				}
			}
		})
	})
}

// FuzzSubscribeParams reads what a client may subscribe with.
func FuzzSubscribeParams(f *testing.F) {
	for _, params := range []string{
		`["ticks"]`, `["ticks",1]`, `["ticks",{"to":1}]`,
		`["t\u0069cks", [] , {}]`, `{}`, `[]`, `[1]`, ` [ "ticks" , null ] `,
	} {
		f.Add(params)
	}
	mux, _ := tickMux()
	f.Fuzz(func(t *testing.T, params string) {
		a, b := farcall.Pipe()
		p := farcall.NewPeer(b, mux, nil)
		defer p.Close()
		if err := a.Write(
			[]byte(`{"jsonrpc":"2.0","method":"time/subscribe","params":` + params + `,"id":1}`)); err != nil {
			t.Fatal(err)
		}
		frame, err := a.Read()
		if err != nil || jsonrpc.Valid(frame) != nil ||
			strings.Contains(string(frame), "Internal error") {
			t.Errorf("%q: %s, %v", params, frame, err)
		}
	})
}
