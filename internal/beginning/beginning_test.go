package beginning

import (
	"errors"
	"testing"

	"github.com/farcall-dev/farcall/jsonrpc"
)

func TestOf(t *testing.T) {
	for text, want := range map[string]struct {
		id                  string
		call, answer, batch bool
	}{
		`{"jsonrpc":"2.0","id":7,"method":"x","params":[`: {id: "7", call: true},
		`{"id":"a","result":"xxx`:                         {id: `"a"`, answer: true},
		`{"result":"xxx`:                                  {answer: true},
		`{"error":{"code":1},"id":3,"x":1`:                {id: "3", answer: true},
		`{"result":1,"method":"x"`:                        {call: true},
		`{"id":12`:                                        {}, // it may go on
		` [ {"id":1,"result":2},`:                         {id: "1", answer: true, batch: true},
		`log: {"id":1}`:                                   {},
		``:                                                {},
	} {
		got := Of([]byte(text))
		if string(got.ID.Raw()) != want.id || got.Call != want.call || got.Answer != want.answer ||
			got.Batch != want.batch {
			t.Errorf("%s: %+v", text, got)
		}
	}
}

type refused struct{ error }

func (refused) Begins() []byte { return []byte("{") }

func TestBytesOf(t *testing.T) {
	if b := BytesOf(errors.Join(refused{errors.New("no")})); string(b) != "{" {
		t.Errorf("%q", b)
	}
	if b := BytesOf(errors.New("no")); b != nil {
		t.Errorf("%q", b)
	}
}

// FuzzOf compares what the beginning of a message says with the whole of it.
func FuzzOf(f *testing.F) {
	for _, text := range []string{
		`{"jsonrpc":"2.0","id":7,"method":"x"}`, `{"id":"a","result":1}`,
		`[{"jsonrpc":"2.0","error":{"code":1,"message":""},"id":null}]`,
	} {
		f.Add([]byte(text), len(text)/2)
	}
	f.Fuzz(func(t *testing.T, frame []byte, n int) {
		part := Of(frame[:min(len(frame), max(n, 0))])
		var d jsonrpc.Decoder
		var b jsonrpc.Batch
		if d.Decode(frame, &b) != nil || b.Messages[0].Kind == jsonrpc.Invalid {
			return
		}
		m := &b.Messages[0]
		isCall := m.Kind == jsonrpc.Request || m.Kind == jsonrpc.Notification
		if part.Call && !isCall || !part.ID.IsAbsent() && string(part.ID.Raw()) != string(m.ID.Raw()) {
			t.Errorf("%q begins as %+v, and is %+v", frame, part, m)
		}
	})
}
