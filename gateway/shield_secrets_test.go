package gateway_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
)

// said is everything that a run has produced, by where.
type said struct {
	mu  sync.Mutex
	all map[string]*bytes.Buffer
}

func (s *said) add(where string, parts ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[where] == nil {
		s.all[where] = &bytes.Buffer{}
	}
	fmt.Fprintln(s.all[where], parts...)
}

// record is what serve --log-payloads writes of a call, and all causes of its error.
func (s *said) record(_ context.Context, r farcall.Record) {
	s.add("record", r.Method, r.Err)
	s.add("payload", string(r.Request), string(r.Response))
	for err := r.Err; err != nil; err = errors.Unwrap(err) {
		s.add("cause", fmt.Sprintf("%v %+v %#v", err, err, err))
	}
}

// issued is a token of alice's.
func issued(key ed25519.PrivateKey, claims map[string]any) string {
	part := func(v any) string {
		raw, err := json.Marshal(v)
		if err != nil {
			panic(err)
		}
		return base64.RawURLEncoding.EncodeToString(raw)
	}
	message := part(map[string]any{"alg": "EdDSA", "typ": "at+jwt", "kid": "1"}) + "." + part(claims)
	return message + "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(key, []byte(message)))
}

// TestShieldShowsNoSecrets uses secrets in every place where one can be, well and badly, and looks
// for them in all that comes of it: the log, the audit, the page, the status, the answers, the
// records and the causes of errors.
func TestShieldShowsNoSecrets(t *testing.T) {
	t.Parallel()
	const (
		badKey, badBearer, badToken = "canary-bad-key", "canary-bad-bearer",
			"eyJhbGciOiJub25lIn0.canary-bad-token.x"
		ofHeader, ofChild             = "canary-of-the-header", "canary-of-the-child"
		password, nested, note, unfit = "canary-password", "canary-nested", "canary-note",
			"canary-that-does-not-fit"
		badQuery, badBasic, proof, dead = "canary-in-the-query", "Y2FuYXJ5OmJhc2lj",
			"eyJhbGciOiJFZERTQSJ9.canary-proof.x", "canary-dead-header"
	)
	signing := "canary-of-the-signer-of-more-than-32-bytes"
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().Unix()
	claims := map[string]any{
		"iss": "https://id.example", "sub": "alice",
		"aud": "https://gw.example/mcp", "iat": now, "exp": now + 600, "roles": []string{"dev"},
	}
	good := issued(private, claims)
	claims["exp"], claims["iat"] = now-600, now-1200
	expired := issued(private, claims)

	audit := filepath.Join(t.TempDir(), "audit.jsonl")
	c := &gateway.Config{Guard: guarded(allow("dev", "tools/call *", "rpc *"), allow("ops", "*"))}
	c.Guard.JWT = []guard.Issuer{
		{
			Issuer: "https://id.example",
			JWKS: fmt.Sprintf(`{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"1","x":%q}]}`,
				base64.RawURLEncoding.EncodeToString(public)),
		},
	}
	c.Guard.Resource.URL = "https://gw.example/mcp"
	c.Guard.Resource.Scopes = map[string][]string{"tools/call web/ask": {"ask"}}
	c.Guard.Signatures = []guard.Signer{{ID: "partner", Secret: signing, Roles: []string{"dev"}}}
	c.Guard.Audit.File, c.Guard.Audit.Params, c.Guard.Audit.Redact = audit, true, []string{"note"}
	seen := make(chan string, 1000)
	m := newMock("modern")
	mcp.AddTool(m.Server, mcp.Tool{Name: "store"}, func(context.Context, struct {
		Password string `json:"password"`
		Deep     map[string]string
		Note     string `json:"note"`
		Size     int    `json:"size"`
	},
	) (string, error) {
		return "stored", nil
	})
	web := m.http(t, "web", func(r *http.Request) { seen <- r.Header.Get("X-Upstream") })
	web.Headers = map[string]string{"X-Upstream": ofHeader}
	port := newClosedPort(t)
	crash := child("crash", "crash-start")
	crash.Env["TOKEN"] = ofChild
	c.Upstreams = []*gateway.Upstream{
		web, crash,
		{
			Name: "dead", URL: "http://" + port.addr + "/mcp",
			Headers: map[string]string{"Authorization": "Bearer " + dead},
		},
		{
			Name: "raw", URL: "http://" + port.addr + "/", Profile: "raw",
			Headers: map[string]string{"Authorization": "Bearer " + dead},
		},
	}
	out := &said{all: map[string]*bytes.Buffer{}}
	l := newLabOf(t, &gateway.Options{RPC: &farcall.Options{OnRecord: out.record}}, c)

	const store = `"name":"store","arguments":{"password":"` + password + `","Deep":{"api_key":"` +
		nested + `"},"note":"` + note + `","size":1}`
	for _, headers := range [][]string{
		{as("dev")},
		{as("eve")},
		{"Authorization: Bearer " + good},
		{"Authorization: Bearer " + expired},
		{"Authorization: DPoP " + good, "DPoP: " + proof},
		{"X-API-Key: " + badKey},
		{"Authorization: Bearer " + badBearer},
		{"Authorization: Bearer " + badToken},
		{"Authorization: Basic " + badBasic},
		{"Authorization: " + badBearer},
		{as("dev"), "Authorization: Bearer " + badBearer},
		{"Signature: x=:" + badBasic + ":", "Signature-Input: x=(" + badBearer + ")"},
		{},
	} {
		for _, x := range []struct{ path, method, name, params string }{
			{"/mcp", "tools/call", "store", store},
			{"/mcp/web", "tools/call", "ask", `"name":"ask","arguments":{}`},
			{"/mcp", "tools/call", "store", strings.Replace(store, `"size":1`, `"size":"`+unfit+`"`, 1)},
			{
				"/mcp", "tools/call", "store",
				`"name":"store","arguments":{"password":"` + password + `","password":"` + nested + `"}`,
			},
			{"/mcp/dead", "tools/list", "", ""},
			{"/mcp/crash", "tools/list", "", ""},
			{"/mcp?access_token=" + badQuery, "tools/list", "", ""},
		} {
			got, err := l.modernAt(t.Context(), x.path, x.method, x.name, x.params, headers...)
			if err != nil {
				t.Fatal(err)
			}
			out.add("answer", got.header, got.body)
		}
		got, err := l.post(t.Context(), "/rpc/raw",
			`{"jsonrpc":"2.0","id":1,"method":"x","params":{"password":"`+password+`"}}`, headers...)
		if err != nil {
			t.Fatal(err)
		}
		out.add("answer", got.header, got.body)
	}
	if got := received(t, "a request", seen); got != ofHeader {
		t.Errorf("the server was sent %q", got)
	}
	out.signed(t, l, signing)
	for _, path := range []string{"/", "/api/status"} {
		out.add("page", l.getAs(t, path, "ops"))
		out.add("page", l.getAs(t, path, "eve"))
	}
	if err := l.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	raw, err := os.ReadFile(audit)
	if err != nil || !bytes.Contains(raw, []byte(`"store"`)) {
		t.Fatalf("%v, %s", err, raw)
	}
	out.add("audit", string(raw))
	out.add("log", l.log.String())
	out.add("config", fmt.Sprintf("%v %+v %#v", c.Guard, *c.Guard, c.Guard),
		fmt.Sprintf("%v %+v %#v", web, crash, web))

	canaries := []string{
		keyed("dev"), keyed("eve"), good, expired, good[len(good)-40:], expired[len(expired)-40:], badKey,
		badBearer, badToken, badQuery, badBasic, proof, dead,
		ofHeader, ofChild, signing,
	}
	for where, text := range out.all {
		list := canaries
		if where != "payload" { // which are what they are: see --log-payloads
			list = append(slices.Clip(list), password, nested, note)
		}
		if where != "payload" && where != "audit" { // which was asked to write params down
			list = append(slices.Clip(list), unfit)
		}
		for _, canary := range list {
			if i := strings.Index(text.String(), canary); i >= 0 {
				t.Errorf("%s has %s: …%s…", where, canary, text.String()[max(0, i-300):min(text.Len(), i+60)])
			}
		}
	}
}

// signed makes signed requests and messages, well and badly.
func (s *said) signed(t *testing.T, l *lab, secret string) {
	t.Helper()
	for _, key := range []string{secret, secret + "x"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, l.url+"/rpc/raw",
			strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"x"}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		if err := guard.SignRequest(r, "partner", []byte(key)); err != nil {
			t.Fatal(err)
		}
		got, err := l.web.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := io.ReadAll(got.Body)
		got.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		s.add("answer", got.Header, string(raw))
		params, err := guard.SignParams("x", jsonrpc.Raw(`{}`), "partner", "https://gw.example/mcp",
			[]byte(key))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := l.post(t.Context(), "/rpc/raw",
			`{"jsonrpc":"2.0","id":1,"method":"x","params":`+string(params)+`}`, as("eve"))
		if err != nil {
			t.Fatal(err)
		}
		s.add("answer", answer.body)
	}
}

func (l *lab) getAs(t *testing.T, path, id string) string {
	t.Helper()
	web := l.web
	defer func() { l.web = web }()
	l.web = &http.Client{Transport: &withKey{web.Transport, keyed(id)}}
	return l.get(t, path)
}
