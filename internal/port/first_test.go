package port

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/stream"
)

const (
	modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},` +
		`"io.modelcontextprotocol/clientCapabilities":{}}`
	modernAdd = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"math_add",` +
		`"arguments":{"a":2,"b":3},` + modernMeta + `}}`
	initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize",` +
		`"params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c",` +
		`"version":"1"}}}`
)

func TestSpeaksMCP(t *testing.T) {
	t.Parallel()
	for frame, want := range map[string]bool{
		initialize: true,
		modernAdd:  true,
		`{"jsonrpc":"2.0","id":1,` +
			`"method":"server\/discover"}`: true,
		`{"jsonrpc":"2.0","id":1,` +
			`"method":"ping"}`: true,
		// learns what to begin with
		`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`: true,
		`{"jsonrpc":"2.0","id":1,"method":"x/y","params":{` + modernMeta +
			`}}`: true,
		`{"jsonrpc":"2.0","method":"x/y","params":{` + modernMeta +
			`}}`: true,
		`{"jsonrpc":"2.0","id":1,"method":"x/y",` +
			`"params":{"_meta":{"io.modelcontextprotocol\/protocolVersion":"x"}}}`: true,
		`{"jsonrpc":"2.0","id":1,"method":"math/add","params":{"a":1,"b":2,` +
			`"_meta":{"progressToken":1}}}`: false,
		`{"jsonrpc":"2.0","id":1,"method":"math/add",` +
			`"params":[{"_meta":{"io.modelcontextprotocol/protocolVersion":"x"}}]}`: false,
		`{"jsonrpc":"2.0","id":1,"method":"echo",` +
			`"params":{"io.modelcontextprotocol/protocolVersion":"x"}}`: false,
		`{"jsonrpc":"2.0","id":1,` +
			`"method":"rpc.discover"}`: false,
		`{"jsonrpc":"2.0","id":1,` +
			`"method":"Initialize"}`: false,
		`{"jsonrpc":"2.0","id":1,"result":{` + modernMeta +
			`}}`: false,
		`[` + initialize + `]`: false,
		`"initialize"`:         false,
		`{"method":"init`:      false,
		``:                     false,
	} {
		if got := SpeaksMCP([]byte(frame)); got != want {
			t.Errorf("%s: %v, want %v", frame, got, want)
		}
	}
}

func FuzzSpeaksMCP(f *testing.F) {
	f.Add([]byte(initialize))
	f.Add([]byte(modernAdd))
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"math/add","params":[2,3]}`))
	f.Add([]byte(`{"jsonrpc":"2.0","method":"a","params":{"_meta":[]}}`))
	f.Fuzz(func(t *testing.T, frame []byte) {
		kept := string(frame)
		if SpeaksMCP(frame) && !strings.Contains(kept, "method") {
			// The name may be escaped, the message may not be anything else.
			if jsonrpc.Valid(frame) != nil {
				t.Errorf("%q is not even JSON", kept)
			}
		}
		if string(frame) != kept {
			t.Error("the frame was changed")
		}
	})
}

// bare has none of the halves that a transport may have.
type bare struct{ farcall.Transport }

// refusing refuses what it reads.
type refusing struct {
	bare
	err error
}

func (r refusing) Read() ([]byte, error) { return nil, r.err }

// A transport with a first frame that was read has the halves of the original.
func TestFirst(t *testing.T) {
	t.Parallel()
	one, two := net.Pipe()
	t.Cleanup(func() { one.Close(); two.Close() })
	a, b := farcall.Pipe()
	if err := b.Write([]byte("1"), []byte("2")); err != nil {
		t.Fatal(err)
	}
	again, frame, err := First(a)
	if string(frame) != "1" || err != nil {
		t.Fatalf("%q, %v", frame, err)
	}
	if _, ok := again.(farcall.TryWriter); !ok {
		t.Error("TryWriter is lost")
	}
	if !again.(farcall.Buffered).Buffered() {
		t.Error("the frame is not there")
	}
	for _, want := range []string{"1", "2"} {
		again.(farcall.Keeper).Keep() // of what is no Keeper
		if got, err := again.Read(); string(got) != want || err != nil {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
	}
	if again.(farcall.Buffered).Buffered() {
		t.Error("a frame is there")
	}
	two.Close()
	again, _, err = First(stream.New(one, stream.NDJSON, nil))
	if _, ok := again.(farcall.TryWriter); ok || !errors.Is(err, io.EOF) {
		t.Errorf("a TryWriter of a transport without one, or no end: %v", err)
	}
	refused := &jsonrpc.Error{Code: jsonrpc.InvalidRequest}
	again, _, err = First(refusing{bare{a}, refused})
	if !errors.Is(err, refused) {
		t.Error(err)
	}
	if _, err := again.Read(); !errors.Is(err, refused) {
		t.Error(err)
	}
	if again.(farcall.Buffered).Buffered() {
		t.Error("Buffered does not know whether a frame is there")
	}
}
