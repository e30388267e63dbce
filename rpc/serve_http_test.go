package rpc

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/internal/owner"
)

// A telling service answers with what reads its requests, and on which connection they came.
type telling struct{}

func (telling) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	fmt.Fprintf(w, "%T %s %v %s %q %v %s", w, r.Method, r.TLS != nil, owner.ConnFrom(r.Context()).Name,
		body, err,
		r.Context().Value(http.LocalAddrContextKey).(net.Addr).Network())
}

func (telling) Fast(path string) bool          { return path == "/fast" }
func (telling) Accept(net.Conn) Accepted       { return Accepted{} }
func (telling) Policy() Policy                 { return nil }
func (telling) Shutdown(context.Context) error { return nil }

// TestStdHTTP sends the same requests with and without the fast path, over TCP, unix
// sockets and TLS, and looks at what has read them.
func TestStdHTTP(t *testing.T) {
	t.Setenv("FARCALL_HTTP", "") // the options decide
	const fast, std, body = "*http1.response", "*http.response", "Content-Length: 2\r\n\r\nhi"
	requests := []struct{ text, reader string }{
		{"POST /fast HTTP/1.1\r\nHost: localhost\r\n" + body, fast},
		{"POST /fast HTTP/1.1\r\nhost: localhost\r\n" + body, fast},
		{"POST /slow HTTP/1.1\r\nHost: localhost\r\n" + body, std},
		{"POST /fast HTTP/1.1\r\nHost: localhost\r\n" + body, std}, // the connection stays there
	}
	cert, key, _ := writeCertificate(t, t.TempDir(), 1)
	for _, o := range []*ServeOptions{
		{},
		{StdHTTP: true},
		{CertFile: cert, KeyFile: key},
		{CertFile: cert, KeyFile: key, StdHTTP: true},
	} {
		t.Run(fmt.Sprintf("tls=%v,std=%v", o.CertFile != "", o.StdHTTP), func(t *testing.T) {
			o.Service = telling{}
			socket := filepath.Join(t.TempDir(), "s")
			r := run(t, o, "127.0.0.1:0", "unix:"+socket)
			for _, network := range []string{"tcp", "unix"} {
				at := map[string]string{"tcp": r.at[0], "unix": socket}[network]
				var d net.Dialer
				conn, err := d.DialContext(t.Context(), network, at)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				if o.CertFile != "" && network == "tcp" {
					conn = tls.Client(conn, &tls.Config{
						InsecureSkipVerify: true, // the certificate is not what is tested
						NextProtos:         []string{"http/1.1"},
					})
				}
				in, name := bufio.NewReader(conn), ""
				for i, q := range requests {
					if _, err := io.WriteString(conn, q.text); err != nil {
						t.Fatal(err)
					}
					got := answerText(t, in)
					if o.StdHTTP {
						q.reader = std
					}
					reader, rest, _ := strings.Cut(got, " ")
					if reader != q.reader || !strings.HasSuffix(rest, fmt.Sprintf(`"hi" <nil> %s`, network)) {
						t.Errorf("%s: the answer to request %d is %q", network, i, got)
					}
					if name == "" {
						name = rest
					} else if name != rest {
						t.Errorf("%s: request %d has %q, the first %q", network, i, rest, name)
					}
				}
			}
		})
	}
}

func answerText(t *testing.T, in *bufio.Reader) string {
	t.Helper()
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestHTTPEnvironment switches the fast path off for programs without an option for it.
func TestHTTPEnvironment(t *testing.T) {
	t.Setenv("FARCALL_HTTP", "std")
	r := run(t, &ServeOptions{Service: telling{}}, "127.0.0.1:0")
	resp, err := http.Post("http://"+r.at[0]+"/fast", "text/plain", strings.NewReader("hi"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); err != nil ||
		!strings.HasPrefix(string(text), "*http.response ") {
		t.Errorf("%q, %v", text, err)
	}
}
