package guard_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/guard"
)

// A refused request is answered, and its connection closed, whether or not the body that it
// announced comes.
func TestUnauthenticatedBody(t *testing.T) {
	t.Parallel()
	s := newSite(t, &guard.Config{Keys: []guard.Key{keyOf("ci", goodKey)}}, nil)
	for _, body := range []string{
		"Content-Length: 1000\r\n\r\n", "Content-Length: 1000\r\n\r\n{",
		"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
		"Expect: 100-continue\r\nContent-Length: 1000\r\n\r\n",
	} {
		t.Run(body, func(t *testing.T) {
			t.Parallel()
			conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
				t.Fatal(err)
			}
			if _, err := fmt.Fprintf(conn,
				"POST /rpc HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n%s",
				body); err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(conn)
			if err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 401") {
				t.Errorf("%.200s, %v", got, err)
			}
		})
	}
}

// Messages on an unauthenticated connection are small.
func TestUnauthenticatedMessageIsBounded(t *testing.T) {
	key := keyOf("ci", goodKey)
	for _, signers := range [][]guard.Signer{nil, {{ID: "partner", Secret: secret}}} {
		g := newGuard(t, &guard.Config{Keys: []guard.Key{key}, Signatures: signers}, nil)
		if most := g.MaxMessage(t.Context(),
			&guard.Conn{Transport: "tcp", Remote: "192.0.2.1:1"}); most <= 0 || most > 1<<20 {
			t.Errorf("a message may have %d bytes", most)
		}
	}
	g := newGuard(t, &guard.Config{Anonymous: true}, nil)
	if most := g.MaxMessage(t.Context(),
		&guard.Conn{Transport: "tcp", Remote: "192.0.2.1:1"}); most != 0 {
		t.Errorf("with anonymous callers, a message may have %d bytes", most)
	}
}

// counted is a body that must not be read.
type counted struct{ read int }

func (c *counted) Read(p []byte) (int, error) { c.read += len(p); return len(p), nil }
func (c *counted) Close() error               { return nil }

// An invalid signature costs no memory: the body is not read before it is known to be good.
func TestBogusSignaturesReadNoBody(t *testing.T) {
	const covered = `farcall=("@method" "@authority" "@path" "@query" "content-digest" "content-type")`
	now := time.Now().Unix()
	for _, signers := range [][]guard.Signer{nil, {{ID: "partner", Secret: secret}}} {
		g := newGuard(t, &guard.Config{Signatures: signers, Keys: []guard.Key{keyOf("ci", goodKey)}}, nil)
		h := g.HTTP(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			t.Error("it is let in")
		}))
		for _, input := range []string{
			`a=();keyid="x"`, `a=`, covered, covered + `;keyid="partner"`,
			fmt.Sprintf(covered+`;created=%d;nonce="0123456789abcdef0123";keyid="partner"`, now),
			fmt.Sprintf(covered+`;created=%d;nonce="0123456789abcdef0123";keyid="partner";alg="hmac-sha256"`,
				now),
		} {
			body := &counted{}
			r := httptest.NewRequest(http.MethodPost, "http://rpc.example/rpc", body)
			r.ContentLength = 50_000_000
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Content-Digest", "sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:")
			r.Header.Set("Signature-Input", input)
			label, _, _ := strings.Cut(input, "=")
			r.Header.Set("Signature", label+"=:"+strings.Repeat("A", 43)+"=:")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != http.StatusUnauthorized || body.read > 0 {
				t.Errorf("%s: %d, and %d bytes of the body are read", input, w.Code, body.read)
			}
		}
	}
}
