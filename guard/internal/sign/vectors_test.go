package sign

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"testing"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/leak"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

type vectors struct {
	Keys map[string]struct {
		Alg    string `json:"alg"`
		Secret []byte `json:"secret"`
		Seed   []byte `json:"seed"`
		Public []byte `json:"public"`
	} `json:"keys"`
	Vectors []struct {
		Name     string `json:"name"`
		Method   string `json:"method"`
		Audience string `json:"audience"`
		Params   string `json:"params"`
		Signed   string `json:"signed"`
		Refused  Reason `json:"refused"`
	} `json:"vectors"`
}

func readVectors(tb testing.TB) *vectors {
	tb.Helper()
	raw, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		tb.Fatal(err)
	}
	v := new(vectors)
	if err := jsonv2.Unmarshal(raw, v); err != nil {
		tb.Fatal(err)
	}
	return v
}

// The vectors were made by another program, in another language, with another library: the bytes
// that are signed are written out in each, and the signatures of the first two were checked with
// openssl.
func TestVectors(t *testing.T) {
	v := readVectors(t)
	keys := testKeys(t)
	if len(v.Vectors) < 12 || string(v.Keys["ci"].Secret) != string(testSecret) ||
		string(v.Keys["ed"].Public) != string(keys["ed"].Public) {
		t.Fatal("the vectors have other keys")
	}
	for _, test := range v.Vectors {
		t.Run(test.Name, func(t *testing.T) {
			if got := HasSignature([]byte(test.Params)); got != (test.Refused != Missing) {
				t.Errorf("HasSignature is %v", got)
			}
			s, err := VerifyMessage(test.Method, []byte(test.Params), keys, test.Audience)
			if test.Refused != "" {
				wantReason(t, err, test.Refused)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if s.Nonce != testNonce || !s.Created.Equal(testTime) {
				t.Errorf("%+v", s)
			}
			w := getWork()
			defer w.put()
			if _, err := w.verify(test.Method, []byte(test.Params), keys, test.Audience); err != nil {
				t.Fatal(err)
			}
			if string(w.base) != test.Signed {
				t.Errorf("signed is\n%q, want\n%q", w.base, test.Signed)
			}
		})
	}
}

func wantReason(t *testing.T, err error, want Reason) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || e.Reason != want {
		t.Fatalf("%v, want the reason %s", err, want)
	}
}

// What is signed here verifies here, and nothing but the signature is added.
func TestMessage(t *testing.T) {
	keys := testKeys(t)
	const member = `"farcall.dev/signature":{"alg":"hmac-sha256","created":1700000000,"keyid":"ci",` +
		`"nonce":"nonce-0123456789","sig":"`
	for params, want := range map[string]string{
		``:                       `{"_meta":{` + member + `SIG"}}}`,
		` { } `:                  ` {"_meta":{` + member + `SIG"}} } `,
		`{"b":1.0}`:              `{"_meta":{` + member + `SIG"}},"b":1.0}`,
		`{"b":1,"_meta":{}}`:     `{"b":1,"_meta":{` + member + `SIG"}}}`,
		`{"_meta": { "x": "y"}}`: `{"_meta": {` + member + `SIG"}, "x": "y"}}`,
	} {
		for id, key := range map[string]any{"ci": testSecret, "ed": testSeed} {
			out, err := Message("m", []byte(params), id, key, testTime, testNonce, "here")
			if err != nil {
				t.Fatal(params, err)
			}
			s, err := VerifyMessage("m", out, keys, "here")
			if err != nil || s.KeyID != id {
				t.Errorf("%s: %+v, %v", out, s, err)
			}
			if i := len(out); id == "ci" && len(want)+43-3 != i {
				t.Errorf("%s, want %s", out, want)
			}
		}
	}
	one, _ := Message("m", nil, "ci", testSecret, testTime, "", "")
	two, _ := Message("m", nil, "ci", testSecret, testTime, "", "")
	if string(one) == string(two) || len(one) == 0 {
		t.Error("a nonce that is not given must be random")
	}
}

func TestMessageRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		method, params, id string
		key                any
		nonce              string
	}{
		"a list":             {"m", `[1]`, "ci", testSecret, testNonce},
		"a short secret":     {"m", `{}`, "ci", testSecret[:31], testNonce},
		"a text for a key":   {"m", `{}`, "ci", "0123456789abcdef0123456789abcdef", testNonce},
		"half a key":         {"m", `{}`, "ci", testSeed[:32], testNonce},
		"a public key":       {"m", `{}`, "ci", testSeed.Public().(ed25519.PublicKey), testNonce},
		"no ID":              {"m", `{}`, "", testSecret, testNonce},
		"a line in the ID":   {"m", `{}`, "a\nb", testSecret, testNonce},
		"a short nonce":      {"m", `{}`, "ci", testSecret, "short"},
		"a line in a nonce":  {"m", `{}`, "ci", testSecret, "nonce\n0123456789"},
		"lines in a method":  {"m\n{}", `{}`, "ci", testSecret, testNonce},
		"_meta is no object": {"m", `{"_meta":null}`, "ci", testSecret, testNonce},
		"signed already":     {"m", `{"_meta":{"farcall.dev/signature":1}}`, "ci", testSecret, testNonce},
		"a number":           {"m", `{"a":0.1000000000000000055}`, "ci", testSecret, testNonce},
		"no JSON":            {"m", `{"a":}`, "ci", testSecret, testNonce},
		"more after it":      {"m", `{}{}`, "ci", testSecret, testNonce},
	} {
		if out, err := Message(test.method, []byte(test.params), test.id, test.key, testTime, test.nonce,
			""); err == nil {
			t.Errorf("%s: %s", name, out)
		}
	}
}

// The example of the package's comment.
func TestExample(t *testing.T) {
	const params = `{"name":"add","arguments":{"b":3,"a":2.0}}`
	const signed = "farcall-signature-v1\nhmac-sha256\nci\n1700000000\nnonce-0123456789\n\n" +
		"tools/call\n" + `{"_meta":{},"arguments":{"a":2,"b":3},"name":"add"}`
	const want = `{"_meta":{"farcall.dev/signature":{"alg":"hmac-sha256","created":1700000000,` +
		`"keyid":"ci","nonce":"nonce-0123456789",` +
		`"sig":"c5ZQgDNh059Uk8JmwvBadJEVLmlVQr8oipFdDoWaYIU"}},"name":"add","arguments":{"b":3,"a":2.0}}`
	got, err := Message("tools/call", []byte(params), "ci", testSecret, testTime, testNonce, "")
	if err != nil || string(got) != want {
		t.Errorf("%s, want\n%s (%v)", got, want, err)
	}
	h := hmac.New(sha256.New, testSecret)
	h.Write([]byte(signed))
	if sum := hex.EncodeToString(h.Sum(nil)); len(signed) != 127 ||
		sum != "739650803361d39f5493c266c2f05a7491152e695542bf288a915d0e859a6085" {
		t.Error(len(signed), sum)
	}
}
