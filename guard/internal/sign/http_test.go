package sign

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// The keys of RFC 9421 appendix B.1.4 and B.1.5.
const (
	rfcEd25519 = "-----BEGIN PUBLIC KEY-----\n" +
		"MCowBQYDK2VwAyEAJrQLj5P/89iXES9+vFgrIy29clF9CC/oPPsw3c5D0bs=\n-----END PUBLIC KEY-----\n"
	rfcSecret = "uzvJfB4u3N0Jy4T7NZ75MDVcr8zSTInedJtkgcu46YW4XByzNJjxBdtjUkdJPBtbmHhIDi6pcl8jsasjlTM" +
		"tDQ=="
)

// rfcRequest is the test-request of RFC 9421 appendix B.2.
func rfcRequest(t *testing.T) *http.Request {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/foo?param=Value&Pet=dog",
		strings.NewReader(`{"hello": "world"}`))
	r.Host = "example.com"
	for name, value := range map[string]string{
		"Date":         "Tue, 20 Apr 2021 02:07:55 GMT",
		"Content-Type": "application/json",
		"Content-Digest": "sha-512=:WZDPaVn/7XgHaAy8pmojAkGWoRx2UFChF41A2svX+TaPm+AbwAgBWnrIiYllu7BNNye" +
			"aldVLvRwEmTHWXvJwew==:",
		"Content-Length": "18",
	} {
		r.Header.Set(name, value)
	}
	return r
}

// RFC 9421 appendix B.2.5 (HMAC-SHA-256) and B.2.6 (Ed25519).
func TestRFC9421Vectors(t *testing.T) {
	secret, err := base64.StdEncoding.DecodeString(rfcSecret)
	if err != nil {
		t.Fatal(err)
	}
	shared, err := NewSecret("test-shared-secret", secret)
	if err != nil {
		t.Fatal(err)
	}
	public, err := NewPublic("test-key-ed25519", rfcEd25519)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, input, signature, base string
		key                          *Key
	}{
		{
			"B.2.5",
			`sig-b25=("date" "@authority" "content-type");created=1618884473;keyid="test-shared-secret"`,
			`sig-b25=:pxcQw6G3AjtMBQjwo8XzkZf/bws5LelbaMk5rGIGtE8=:`,
			"\"date\": Tue, 20 Apr 2021 02:07:55 GMT\n\"@authority\": example.com\n" +
				"\"content-type\": application/json\n" +
				`"@signature-params": ("date" "@authority" ` +
				`"content-type");created=1618884473;keyid="test-shared-secret"`,
			shared,
		},
		{
			"B.2.6", `sig-b26=("date" "@method" "@path" "@authority" "content-type" ` +
				`"content-length");created=1618884473;keyid="test-key-ed25519"`,
			`sig-b26=:wqcAqbmYJ2ji2glfAMaRy4gruYYnx2nEFN2HN6jrnDnQCK1u02Gb04v9EDgwUPiu4A0w6vuQv5lIp5WPpBKR` +
				`Cw==:`,
			"\"date\": Tue, 20 Apr 2021 02:07:55 GMT\n\"@method\": POST\n\"@path\": /foo\n" +
				"\"@authority\": example.com\n\"content-type\": application/json\n\"content-length\": 18\n" +
				`"@signature-params": ("date" "@method" "@path" "@authority" "content-type" ` +
				`"content-length");created=1618884473;keyid="test-key-ed25519"`,
			public,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := rfcRequest(t)
			r.Header.Set("Signature-Input", test.input)
			r.Header.Set("Signature", test.signature)
			in, signature, err := readInput(r.Header)
			if err != nil {
				t.Fatal(err)
			}
			to, err := newTarget(r)
			if err != nil {
				t.Fatal(err)
			}
			base, err := in.appendBase(nil, to, r)
			if err != nil || string(base) != test.base {
				t.Fatalf("%s, want\n%s (%v)", base, test.base, err)
			}
			w := getWork()
			defer w.put()
			if err := test.key.verify(in.alg, base, signature, w); err != nil {
				t.Error(err)
			}
			wantReason(t, test.key.verify(in.alg, append(base, ' '), signature, w), Mismatch)
			// farcall wants more than these cover.
			_, failure := VerifyHTTP(r, []byte(`{"hello": "world"}`), map[string]*Key{in.keyID: test.key})
			wantReason(t, failure, Uncovered)
			if err := checkDigest(r.Header, []byte(`{"hello": "world"}`)); err != nil {
				t.Error(err)
			}
		})
	}
}

// RFC 9421 §2.1 and §2.2: how components are written.
func TestComponents(t *testing.T) {
	header := http.Header{
		"Host":           {"www.example.com"},
		"X-Ows-Header":   {"  Leading and trailing whitespace.  "},
		"X-Obs-Fold":     {"Obsolete\r\n    line folding."},
		"Cache-Control":  {"max-age=60", "   must-revalidate"},
		"Example-Dict":   {"  a=1,    b=2;x=1;y=2,   c=(a   b   c)"},
		"X-Empty-Header": {""},
	}
	for name, want := range map[string]string{
		"x-ows-header": "Leading and trailing whitespace.", "x-obs-fold": "Obsolete line folding.",
		"cache-control": "max-age=60, must-revalidate",
		"example-dict":  "a=1,    b=2;x=1;y=2,   c=(a   b   c)", "x-empty-header": "",
	} {
		if got, err := fieldValue(header, name); err != nil || got != want {
			t.Errorf("%s: %q, want %q (%v)", name, got, want, err)
		}
	}
	for _, bad := range []string{"a\nb", "a\rb", "a\r\nb", "a\r\n b\nc", "a\x00b", "é", "a\x7fb"} {
		if got, err := fieldValue(http.Header{"A": {bad}}, "a"); err == nil {
			t.Errorf("%q is %q", bad, got)
		}
	}
	for _, test := range []struct {
		uri, host string
		tls       bool
		want      target
	}{
		{
			"/path?param=value", "www.example.com", true,
			target{"POST", "https", "www.example.com", "/path", "?param=value", "/path?param=value"},
		},
		{
			"/path", "WWW.Example.com:443", true,
			target{"POST", "https", "www.example.com", "/path", "?", "/path"},
		},
		{
			"/a%2Fb//c?", "example.com:80", false,
			target{"POST", "http", "example.com", "/a%2Fb//c", "?", "/a%2Fb//c?"},
		},
		{
			"/?a=%20+b?c", "example.com:443", false,
			target{"POST", "http", "example.com", "/", "?a=%20+b?c", "/?a=%20+b?c"},
		},
		{"/", "[::1]:8080", false, target{"POST", "http", "[::1]:8080", "/", "?", "/"}},
		{"/", "example.com:80", true, target{"POST", "https", "example.com:80", "/", "?", "/"}},
		{
			"//evil.example/x", "example.com", false,
			target{"POST", "http", "example.com", "//evil.example/x", "?", "//evil.example/x"},
		},
		{
			"http://www.example.com?a=1", "www.example.com", false,
			target{"POST", "http", "www.example.com", "/", "?a=1", "http://www.example.com?a=1"},
		},
	} {
		r := &http.Request{Method: http.MethodPost, Host: test.host, RequestURI: test.uri}
		if test.tls {
			r.TLS = new(tls.ConnectionState)
		}
		if got, err := newTarget(r); err != nil || *got != test.want {
			t.Errorf("%s: %+v, want %+v (%v)", test.uri, got, test.want, err)
		}
	}
	for _, uri := range []string{"*", "example.com:443", "mailto:a"} {
		if got, err := newTarget(
			&http.Request{Method: http.MethodConnect, Host: "h", RequestURI: uri}); err == nil {
			t.Errorf("%s: %+v", uri, got)
		}
	}
	if got, err := newTarget(&http.Request{Method: http.MethodGet, RequestURI: "/"}); err == nil {
		t.Errorf("%+v", got)
	}
}

// What one end signs the other end takes, over HTTP/1.1 and HTTP/2, whatever net/http does on the
// way.
func TestHTTPEndToEnd(t *testing.T) {
	keys := testKeys(t)
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s, err := VerifyHTTP(r, body, keys)
		if err != nil {
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		fmt.Fprint(w, r.Proto, " ", s.KeyID, " ", s.Nonce, " ", s.Created.Unix())
	})
	plain := httptest.NewServer(http.StripPrefix("/base", h))
	defer plain.Close()
	secure := httptest.NewUnstartedServer(h)
	secure.EnableHTTP2 = true
	secure.StartTLS()
	defer secure.Close()
	for _, server := range []*httptest.Server{plain, secure} {
		for _, path := range []string{
			"/base", "/base/a%2Fb/c%20d?x=1&y=%C3%A9", "/base/?",
			"/base//x?a=b?c",
		} {
			for id, key := range map[string]any{"ci": testSecret, "ed": testSeed} {
				for _, body := range []string{"", testBody} {
					r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+path,
						strings.NewReader(body))
					r.Header.Set("Content-Type", "application/json")
					r.Header.Set("Authorization", "Bearer x")
					r.Header.Add("Mcp-Param-A", "1")
					r.Header.Add("Mcp-Param-A", " 2 ")
					if err := HTTP(r, []byte(body), id, key, testTime, testNonce); err != nil {
						t.Fatal(err)
					}
					answer, err := server.Client().Do(r)
					if err != nil {
						t.Fatal(err)
					}
					text, _ := io.ReadAll(answer.Body)
					answer.Body.Close()
					if !strings.HasSuffix(string(text), " "+id+" "+testNonce+" 1700000000") {
						t.Errorf("%s%s: %s", server.URL, path, text)
					}
				}
			}
		}
	}
}

// @target-uri does for @authority, @path and @query, where TLS ends at this server.
func TestTargetURI(t *testing.T) {
	keys := testKeys(t)
	for _, secure := range []bool{true, false} {
		r := httptest.NewRequest(http.MethodGet, "/mcp?a=1", nil)
		r.Host = "example.com"
		if secure {
			r.TLS = new(tls.ConnectionState)
		}
		const text = `("@method" ` +
			`"@target-uri");created=1700000000;expires=1700000300;nonce="nonce-0123456789";keyid="ci"`
		base := "\"@method\": GET\n\"@target-uri\": https://example.com/mcp?a=1\n" +
			"\"@signature-params\": " + text
		s, _ := newSigner("ci", testSecret)
		// Another label is none of our business, when ours has the tag; here there is one only, and no
		// tag.
		r.Header.Set("Signature-Input", "x="+text)
		r.Header.Set("Signature", "x=:"+base64.StdEncoding.EncodeToString(s.sign([]byte(base)))+":")
		got, err := VerifyHTTP(r, nil, keys)
		if secure && (err != nil || !got.Expires.Equal(time.Unix(1_700_000_300, 0))) {
			t.Errorf("%+v, %v", got, err)
		}
		if !secure {
			wantReason(t, err, Mismatch)
		}
	}
}

func TestHTTPLabels(t *testing.T) {
	keys := testKeys(t)
	r := request(t, testBody)
	second("")(r) // of a proxy: no tag
	if _, err := VerifyHTTP(r, []byte(testBody), keys); err != nil {
		t.Error(err)
	}
	many := request(t, testBody)
	for i := range maxLabels {
		many.Header.Add("Signature-Input", fmt.Sprintf(`l%d=()`, i))
		many.Header.Add("Signature", fmt.Sprintf(`l%d=:AAAA:`, i))
	}
	_, err := VerifyHTTP(many, []byte(testBody), keys)
	wantReason(t, err, Malformed)
	for value, want := range map[string]Reason{
		`a=()` +
			strings.Repeat(" ", maxField): Malformed,
		`a=(` + strings.Repeat(`"a" `, maxComponents) +
			`"b")`: Malformed,
		`a=(` + components(maxComponents) + `);created=1;keyid="ci";nonce="` + testNonce +
			`"`: Uncovered,
		`a=(` + components(maxComponents+1) + `);created=1;keyid="ci";nonce="` + testNonce +
			`"`: Malformed,
		`a=("@method" @path)`: Malformed, `a=(1)`: Malformed, `a=1`: Malformed, `a`: Malformed,
		`a=()`: Uncovered, `=`: Malformed,
		`a=();created="1"`: Malformed, `a=();created=0`: Malformed, `a=();created=1.5`: Malformed,
		`a=();nonce=1`: Malformed, `a=();alg=""`: Malformed,
		`a=();created=1;keyid="ci";nonce="short"`: Uncovered,
		`a=();created=1;nonce="` + testNonce + `";keyid="` + strings.Repeat("x", maxWord+1) +
			`"`: Uncovered,
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Signature-Input", value)
		r.Header.Set("Signature", "a=:AAAA:")
		_, err := VerifyHTTP(r, nil, keys)
		t.Run(value[:min(20, len(value))], func(t *testing.T) { wantReason(t, err, want) })
	}
	_, err = VerifyHTTP(httptest.NewRequest(http.MethodGet, "/", nil), nil, keys)
	wantReason(t, err, Missing)
}

func components(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"x-%d" `, i)
	}
	return b.String()
}

func TestHTTPRefuses(t *testing.T) {
	for name, change := range map[string]func(r *http.Request) (id string, key any, nonce string){
		"short secret": func(*http.Request) (string, any, string) {
			return "ci", testSecret[:31], testNonce
		},
		"no key":      func(*http.Request) (string, any, string) { return "ci", nil, testNonce },
		"short nonce": func(*http.Request) (string, any, string) { return "ci", testSecret, "short" },
		"an odd ID":   func(*http.Request) (string, any, string) { return "é", testSecret, testNonce },
		"no host": func(r *http.Request) (string, any, string) {
			r.URL.Host = ""
			return "ci", testSecret, testNonce
		},
		"not ASCII": func(r *http.Request) (string, any, string) {
			r.Header.Set("Mcp-Name", "é")
			return "ci", testSecret, testNonce
		},
		"too many headers": func(r *http.Request) (string, any, string) {
			for i := range maxComponents {
				r.Header.Set(fmt.Sprintf("Mcp-Param-%d", i), "x")
			}
			return "ci", testSecret, testNonce
		},
	} {
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://example.com/", nil)
		id, key, nonce := change(r)
		if err := HTTP(r, nil, id, key, testTime, nonce); err == nil || HTTPHasSignature(r) {
			t.Errorf("%s: %v", name, r.Header)
		}
	}
}

func TestNewKeys(t *testing.T) {
	if _, err := NewSecret("ci", testSecret[:31]); err == nil ||
		strings.Contains(err.Error(), string(testSecret[:31])) {
		t.Error(err)
	}
	_, err := VerifyMessage("m", signed(t, "m", `{}`),
		map[string]*Key{"ci": {ID: "ci", Secret: testSecret[:31]}}, "")
	wantReason(t, err, Malformed)
	_, err = VerifyMessage("m", signed(t, "m", `{}`),
		map[string]*Key{"ci": {ID: "ci", Secret: testSecret}}, "")
	if err != nil {
		t.Error(err) // without the constructor
	}
	public := testKeys(t)["ed"].Public
	der, _ := x509.MarshalPKIXPublicKey(public)
	private, _ := x509.MarshalPKCS8PrivateKey(testSeed)
	for text, ok := range map[string]bool{
		string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})):      true,
		base64.StdEncoding.EncodeToString(public):                                   true,
		base64.RawURLEncoding.EncodeToString(public) + "\n":                         true,
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})): false,
		string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der[1:]})):  false,
		base64.StdEncoding.EncodeToString(public[1:]):                               false,
		base64.StdEncoding.EncodeToString(testSeed):                                 false,
		"": false, "not base64": false,
	} {
		key, err := NewPublic("ed", text)
		if (err == nil) != ok || ok && !key.Public.Equal(public) {
			t.Errorf("%.30s: %v", text, err)
		}
		if err != nil && strings.Contains(err.Error(), base64.StdEncoding.EncodeToString(private)[:20]) {
			t.Error(err)
		}
	}
	if _, err := NewPublic("", base64.StdEncoding.EncodeToString(public)); err == nil {
		t.Error("no ID")
	}
}

func FuzzHTTPHeaders(f *testing.F) {
	r := request(f, testBody)
	f.Add(r.Header.Get("Signature-Input"), r.Header.Get("Signature"), r.Header.Get("Content-Digest"))
	f.Add(`a=("@method";req "x";key="a\"b");created=1;x=%"a", b=()`, `a=:AAAA:, b=:AAAA:;x`,
		`sha-512=:AAAA:, md5=?1`)
	f.Add(`a=("@query-param";name="x" "b";bs)`, `a=@1`, `sha-256=("a" 1.5)`)
	keys := testKeys(f)
	f.Fuzz(func(t *testing.T, input, signature, digest string) {
		changed := request(t, testBody)
		same := changed.Header.Get("Content-Digest") == digest
		changed.Header.Set("Signature-Input", input)
		changed.Header.Set("Signature", signature)
		changed.Header.Set("Content-Digest", digest)
		if s, err := VerifyHTTP(changed, []byte(testBody), keys); err == nil &&
			(!same || s.Nonce != testNonce) {
			t.Fatalf("%s, %s, %s: %+v", input, signature, digest, s)
		}
		if d, err := dictionary(changed.Header, "Signature-Input"); err == nil &&
			len(d.Names()) > maxLabels {
			t.Fatal(d.Names())
		}
		_ = checkDigest(changed.Header, []byte(testBody))
	})
}

// VerifyHTTP checks a request as a guard does: the head, then the body.
func VerifyHTTP(r *http.Request, body []byte, keys map[string]*Key) (*Signature, error) {
	if !HTTPHasSignature(r) {
		return nil, failed(Missing, "the request has no Signature")
	}
	s, err := VerifyHead(r, len(body) > 0, keys)
	if err != nil {
		return nil, err
	}
	if err := CheckBody(r, body); err != nil {
		return nil, err
	}
	return s, nil
}
