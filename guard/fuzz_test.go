package guard_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// FuzzHTTP sends hostile headers. Requests without a valid credential are refused.
func FuzzHTTP(f *testing.F) {
	a := newAuthority(f, "1")
	now := newClock()
	c := everyWay(a, false)
	c.Resource.URL = audience
	g, err := guard.New(c, &guard.Options{Now: now.Now})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { g.Close() })
	token := a.token(now.Now(), nil)
	good := map[string]bool{goodKey: true, token: true}
	for _, seed := range [][4]string{
		{"POST", "/rpc", "Authorization: Bearer " + goodKey, ""},
		{"POST", "/rpc", "X-Api-Key: " + goodKey + "\nAuthorization: Bearer x", ""},
		{"POST", "/rpc", "Authorization: Bearer " + token, "{}"},
		{"POST", "/rpc", "Authorization: DPoP " + token + "\nDpop: a.b.c", "{}"},
		{
			"POST", "/rpc",
			"Signature-Input: " +
				"farcall=(\"@method\");created=1;keyid=\"partner\";nonce=\"0123456789abcdef\"\n" +
				"Signature: farcall=:eA==:", "{}",
		},
		{"OPTIONS", "/rpc", "Access-Control-Request-Method: POST", ""},
		{"GET", "/.well-known/oauth-protected-resource/x", "X-Forwarded-For: 127.0.0.1", ""},
		{"GET", "//", "Authorization: \x00\nSignature: \xff", ""},
	} {
		f.Add(seed[0], seed[1], seed[2], seed[3])
	}
	f.Fuzz(func(t *testing.T, method, path, headers, body string) {
		r, err := http.NewRequestWithContext(t.Context(), method, "http://localhost/",
			strings.NewReader(body))
		if err != nil || !strings.HasPrefix(path, "/") {
			return
		}
		r.URL.Path, r.RemoteAddr = path, "192.0.2.1:5"
		var values []string
		for line := range strings.Lines(headers) {
			name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
			name = http.CanonicalHeaderKey(name)
			r.Header[name] = append(r.Header[name], value)
			values = append(values, value)
		}
		var in *guard.Principal
		came := false
		g.HTTP(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			came, in = true, guard.From(r.Context())
			io.ReadAll(r.Body)
		})).ServeHTTP(&deadEnd{header: http.Header{}}, r)
		switch {
		case !came:
		case in == nil:
			if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
				t.Fatalf("an unauthenticated request has passed: %s %s %q", method, path, headers)
			}
		case len(values) == 0:
			t.Fatalf("%v has got in with nothing", in)
		default:
			shown := false
			for _, v := range values {
				_, word, _ := strings.Cut(v, " ")
				shown = shown || good[v] || good[strings.TrimSpace(word)]
			}
			if !shown {
				t.Fatalf("%v has got in: %q", in, headers)
			}
		}
	})
}

// FuzzInterceptor sends hostile params. What the handler gets was allowed under the name that the
// handler reads, once, and by the one that the connection is.
func FuzzInterceptor(f *testing.F) {
	c := &guard.Config{
		Allow:      []guard.Rule{{Calls: []string{"tools/call good", "resources/read file:///public/*"}}},
		Signatures: []guard.Signer{{ID: "partner", Secret: secret}},
	}
	g, err := guard.New(c, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { g.Close() })
	for _, seed := range [][2]string{
		{"tools/call", `{"name":"good"}`},
		{"tools/call", `{"name":"bad","name":"good"}`},
		{"tools/call", `{"name":"bad","Name":"good"}`},
		{"tools/call", `{"n\u0061me":"good"}`},
		{"tools/call", `["good"]`},
		{"resources/read", `{"uri":"file:///public/../x"}`},
		{"completion/complete", `{"ref":{"type":"ref/prompt","name":"x"}}`},
		{"tools/call", `{"_meta":{"farcall.dev/signature":{}}}`},
		{"subscriptions/listen", `{"notifications":{"resourceSubscriptions":["x"]}}`},
	} {
		f.Add(seed[0], []byte(seed[1]), true)
	}
	f.Fuzz(func(t *testing.T, method string, params []byte, known bool) {
		var dec jsonrpc.Decoder
		var batch jsonrpc.Batch
		frame := append(append([]byte(`{"jsonrpc":"2.0","id":1,"method":"x","params":`), params...), '}')
		if dec.Decode(frame, &batch) != nil || len(batch.Messages) != 1 ||
			batch.Messages[0].Kind != jsonrpc.Request {
			return
		}
		conn := &guard.Conn{Transport: "tcp"}
		if known {
			conn.Transport = "stdio"
		}
		came := false
		h := g.Interceptor(
			conn)(farcall.HandlerFunc(func(ctx context.Context, r *farcall.Request) (any, error) {
			came = true
			if guard.From(ctx) == nil {
				t.Fatal("an unauthenticated message has passed")
			}
			switch r.Method {
			case "tools/call":
				if names := members(r.Params, "name"); len(names) != 1 ||
					string(scan.Unquote(names[0])) != "good" {
					t.Fatalf("called: %s", r.Params)
				}
			case "resources/read":
				if uris := members(r.Params, "uri"); len(uris) != 1 ||
					!bytes.HasPrefix(scan.Unquote(uris[0]), []byte("file:///public/")) ||
					bytes.Contains(uris[0], []byte("..")) && bytes.Contains(uris[0], []byte("/../")) {
					t.Fatalf("read: %s", r.Params)
				}
			}
			return nil, nil //nolint:nilnil // it is called
		}))
		_, err := h.ServeRPC(t.Context(),
			&farcall.Request{Method: method, Params: batch.Messages[0].Params})
		if came == (err != nil) {
			t.Fatalf("came %v, %v", came, err)
		}
		if came && !known {
			t.Fatalf("an unauthenticated call has passed: %s %s", method, params)
		}
	})
}

// members are the values of a member, of any spelling that some reader takes for it.
func members(object []byte, name string) (all [][]byte) {
	for key, value := range scan.Members(object) {
		if strings.EqualFold(string(key), name) {
			all = append(all, value)
		}
	}
	return all
}
