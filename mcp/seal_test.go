package mcp

import (
	"bytes"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall/internal/seal"
	"github.com/farcall-dev/farcall/jsonrpc"
)

func testSealer(tb testing.TB, keys ...string) *sealer {
	tb.Helper()
	var all [][]byte
	for _, k := range keys {
		all = append(all, bytes.Repeat([]byte(k), seal.KeySize)[:seal.KeySize])
	}
	s, err := newSealer(all, time.Minute)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func bindTo(owner, method, params string) binding {
	return binding{owner: owner, method: method, params: digestParams(jsonrpc.Raw(params))}
}

func TestSealOpens(t *testing.T) {
	s := testSealer(t)
	b := bindTo("ann", "tools/call", `{"name":"x"}`)
	for _, state := range []string{"", "{}", strings.Repeat("s", maxState)} {
		sealed := s.seal(b, []byte(state))
		if got, err := s.open(b, sealed); err != nil || string(got) != state {
			t.Errorf("%d bytes: opened to %d bytes, %v", len(state), len(got), err)
		}
		if s.seal(b, []byte(state)) == sealed {
			t.Error("the same state is sealed to the same text twice")
		}
	}
}

func TestSealRefusesOtherCalls(t *testing.T) {
	s := testSealer(t, "k")
	sealed := s.seal(bindTo("ann", "tools/call", `{"name":"x","arguments":{"n":1}}`), []byte("secret"))
	if strings.Contains(sealed, "secret") || bytes.Contains(mustDecode(t, sealed), []byte("secret")) {
		t.Error("the state can be read")
	}
	for name, b := range map[string]binding{
		"principal":      bindTo("bob", "tools/call", `{"name":"x","arguments":{"n":1}}`),
		"no principal":   bindTo("", "tools/call", `{"name":"x","arguments":{"n":1}}`),
		"shifted parts":  bindTo("annt", "ools/call", `{"name":"x","arguments":{"n":1}}`),
		"method":         bindTo("ann", "prompts/get", `{"name":"x","arguments":{"n":1}}`),
		"arguments":      bindTo("ann", "tools/call", `{"name":"x","arguments":{"n":2}}`),
		"extra member":   bindTo("ann", "tools/call", `{"name":"x","arguments":{"n":1},"more":1}`),
		"missing member": bindTo("ann", "tools/call", `{"name":"x"}`),
		"nested _meta":   bindTo("ann", "tools/call", `{"name":"x","arguments":{"n":1,"_meta":1}}`),
		"string for 1":   bindTo("ann", "tools/call", `{"name":"x","arguments":{"n":"1"}}`),
		"moved brackets": bindTo("ann", "tools/call", `{"name":"x","arguments":[{"n":1}]}`),
		"nothing at all": bindTo("ann", "tools/call", ``),
		"neighbour float": bindTo("ann", "tools/call",
			`{"name":"x","arguments":{"n":1.0000000000000000001}}`),
	} {
		if _, err := s.open(b, sealed); !errors.Is(err, errState) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSealSurvivesRewriting(t *testing.T) {
	s := testSealer(t, "k")
	sealed := s.seal(
		bindTo("", "m", `{"name":"x","arguments":{"b":[1,2.50],"a":"é/","c":0.0},"_meta":{"x":1}}`), nil)
	for _, params := range []string{
		`{"arguments":{"a":"\u00e9\/","c":0,"b":[ 1.0 , 25e-1 ]}, "name":"x"}`,
		`{"requestState":"s","inputResponses":{"k":{}},"name":"\u0078","arguments":{"b":[1e0,2.5],` +
			`"a":"é/","c":-0}}`,
	} {
		if _, err := s.open(bindTo("", "m", params), sealed); err != nil {
			t.Errorf("%s: %v", params, err)
		}
	}
}

func TestSealRefusesEveryChange(t *testing.T) {
	s := testSealer(t, "k")
	b := bindTo("ann", "tools/call", `{}`)
	sealed := s.seal(b, []byte(`{"a":{}}`))
	try := func(what, text string) {
		t.Helper()
		if _, err := s.open(b, text); !errors.Is(err, errState) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for i := range sealed {
		for _, c := range []byte("A_\n=") {
			if sealed[i] != c {
				try("character changed", sealed[:i]+string(c)+sealed[i+1:])
			}
		}
		try("cut off", sealed[:i])
		try("character left out", sealed[:i]+sealed[i+1:])
		try("line break", sealed[:i]+"\n"+sealed[i:])
	}
	raw := mustDecode(t, sealed)
	for i := range raw {
		for bit := range 8 {
			raw[i] ^= 1 << bit
			try("bit flipped", base64.RawURLEncoding.EncodeToString(raw))
			raw[i] ^= 1 << bit
		}
	}
	try("suffix", sealed+"-TAMPERED")
	try("huge", strings.Repeat("A", 1<<20))
}

func TestSealExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := testSealer(t, "k")
		b := bindTo("", "m", `{}`)
		sealed := s.seal(b, nil)
		<-time.After(time.Minute - time.Millisecond)
		if _, err := s.open(b, sealed); err != nil {
			t.Errorf("before its end: %v", err)
		}
		<-time.After(time.Millisecond)
		if _, err := s.open(b, sealed); !errors.Is(err, errStateExpired) {
			t.Errorf("at its end: %v", err)
		}
	})
}

func TestSealRotation(t *testing.T) {
	b := bindTo("", "m", `{}`)
	old, both, fresh := testSealer(t, "old"), testSealer(t, "new", "old"), testSealer(t, "new")
	if _, err := both.open(b, old.seal(b, nil)); err != nil {
		t.Errorf("the old key does not open any more: %v", err)
	}
	if _, err := fresh.open(b, both.seal(b, nil)); err != nil {
		t.Errorf("the new key does not seal: %v", err)
	}
	if _, err := fresh.open(b, old.seal(b, nil)); !errors.Is(err, errState) {
		t.Errorf("a key that is gone opens: %v", err)
	}
	if _, err := newSealer([][]byte{make([]byte, 16)}, 0); err == nil ||
		!strings.Contains(err.Error(), "16 bytes") {
		t.Errorf("a short key: %v", err)
	}
}

func FuzzOpenState(f *testing.F) {
	s := testSealer(f) // a key of this process: each one that fuzzes has its own
	b := bindTo("", "m", `{}`)
	sealed := s.seal(b, []byte("{}"))
	f.Add(sealed, []byte(`{"a":[1,{"b":"c"}]}`))
	f.Add("", []byte(`1e5`))
	f.Add(sealed+"\n", []byte(`"\ud800"`))
	f.Fuzz(func(t *testing.T, text string, params []byte) {
		if state, err := s.open(b, text); err == nil && text != sealed {
			t.Errorf("%q opened to %q", text, state)
		}
		if jsonrpc.Valid(params) == nil && digestParams(params) != digestParams(bytes.Clone(params)) {
			t.Errorf("%s: two digests", params)
		}
	})
}

func mustDecode(t *testing.T, s string) []byte {
	t.Helper()
	raw, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}
