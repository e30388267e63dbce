package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestServeBehindProxy: what counts is the client that a listed proxy names, over HTTP by a header,
// and over everything by the PROXY protocol, in front of TLS as well. What others say counts for
// nothing.
func TestServeBehindProxy(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key := writeCertificate(t, dir)
	audit := filepath.Join(dir, "audit.jsonl")
	file := filepath.Join(dir, "guard.yaml")
	text := "guard:\n  anonymous: true\n  local: [math/subtract]\n  audit: audit.jsonl\n" +
		"  limits: {connections: 4, rates: [{per: address, limit: 3/day, calls: [math/add]}]}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	const limited = `"code":-32050`
	// The proxy is 127.0.0.2 and the others are their own clients.
	for name, secure := range map[string]bool{"clear": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			args := []string{"--guard", file, "--trusted-proxy", "127.0.0.2", "--listen", "127.0.0.1:0"}
			var config *tls.Config
			if secure {
				args = append(args, "--tls-cert", cert, "--tls-key", key)
				config = &tls.Config{InsecureSkipVerify: true}
			}
			s := serve(t, args...)
			at := s.hostport(t)
			from := func(address string) func() (net.Conn, error) {
				return func() (net.Conn, error) {
					d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}, Timeout: waitLimit}
					return d.Dial("tcp", at)
				}
			}
			post := func(address, method string, headers ...string) string {
				t.Helper()
				tr := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
					return from(address)()
				}, TLSClientConfig: config}
				defer tr.CloseIdleConnections()
				scheme := map[bool]string{true: "https", false: "http"}[secure]
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, scheme+"://"+at+"/rpc",
					strings.NewReader(strings.Replace(addCall, "math/add", method, 1)))
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("Content-Type", "application/json")
				for _, h := range headers {
					name, value, _ := strings.Cut(h, ": ")
					r.Header.Set(name, value)
				}
				resp, err := (&http.Client{Transport: tr}).Do(r)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				got, err := io.ReadAll(resp.Body)
				if err != nil {
					t.Fatal(err)
				}
				return fmt.Sprintf("%d %s", resp.StatusCode, got)
			}
			stream := func(address, head string) string {
				t.Helper()
				conn, err := from(address)()
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				_ = conn.SetDeadline(time.Now().Add(waitLimit))
				if _, err := io.WriteString(conn, head); err != nil {
					t.Fatal(err)
				}
				if secure {
					conn = tls.Client(conn, config)
				}
				if _, err := io.WriteString(conn, addCall+"\n"); err != nil {
					return err.Error()
				}
				buf := make([]byte, 1000)
				n, err := conn.Read(buf)
				return fmt.Sprint(string(buf[:n]), err)
			}
			for range 3 {
				if got := post("127.0.0.2", "math/add", "X-Forwarded-For: 203.0.113.7"); !strings.Contains(got,
					`"result":5`) {
					t.Error(got)
				}
			}
			for _, c := range []struct{ what, got, want string }{
				{
					"the same client", post("127.0.0.2", "math/add", "X-Forwarded-For: 1.2.3.4, 203.0.113.7"),
					limited,
				},
				{
					"the same, by Forwarded", post("127.0.0.2", "math/add", "Forwarded: for=203.0.113.7"),
					limited,
				},
				{"another client", post("127.0.0.2", "math/add", "X-Forwarded-For: 203.0.113.8"), `"result":5`},
				{
					"the same client by another peer's word",
					post("127.0.0.3", "math/add", "X-Forwarded-For: 203.0.113.7"), `"result":5`,
				},
				{
					"disagreement",
					post("127.0.0.2", "math/add", "X-Forwarded-For: 203.0.113.9", "Forwarded: for=1.2.3.4"),
					"400 Forwarded is not valid, or names another",
				},
				{
					"a client that says it is here",
					post("127.0.0.2", "math/subtract", "X-Forwarded-For: 127.0.0.1"), `"code":-32002`,
				},
				{
					"another host",
					post("127.0.0.2", "math/add", "X-Forwarded-For: 203.0.113.8",
						"X-Forwarded-Host: evil.example"), "403",
				},
				{"version 2, the same client", stream("127.0.0.2", proxyHeader("203.0.113.7")), limited},
				{"version 2, another client", stream("127.0.0.2", proxyHeader("203.0.113.10")), `"result":5`},
				{"version 1", stream("127.0.0.2", "PROXY TCP4 203.0.113.11 10.0.0.9 99 80\r\n"), `"result":5`},
				{"no header", stream("127.0.0.2", ""), `"result":5`},
			} {
				if !strings.Contains(c.got, c.want) {
					t.Errorf("%s: %s, want %s", c.what, c.got, c.want)
				}
			}
			for _, head := range []string{
				proxyHeader("203.0.113.12"),
				"PROXY TCP4 203.0.113.12 10.0.0.9 99 80\r\n",
			} {
				if got := stream("127.0.0.3", head); secure && strings.Contains(got, `"result"`) ||
					strings.Contains(got, limited) {
					t.Errorf("a header of an unlisted peer: %s", got)
				}
			}
			text := written(t, audit, "203.0.113.11")
			for _, want := range []string{
				"203.0.113.7", "203.0.113.8", "127.0.0.3", "203.0.113.10",
				"203.0.113.11",
			} {
				if !strings.Contains(text, `"address":"`+want+`"`) {
					t.Errorf("the audit lacks %s:\n%s", want, text)
				}
			}
			for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
				if !json.Valid([]byte(line)) || strings.Contains(line, "1.2.3.4") ||
					strings.Contains(line, `"203.0.113.12"`) {
					t.Error(line)
				}
			}
			if err := os.Remove(audit); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// written waits until a file has a text, and returns it.
func written(t *testing.T, file, want string) string {
	t.Helper()
	for until := time.Now().Add(waitLimit); ; {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(text, []byte(want)) {
			return string(text)
		}
		if time.Now().After(until) {
			t.Fatalf("the audit lacks %s:\n%s", want, text)
		}
		<-time.After(50 * time.Millisecond)
	}
}

// proxyHeader is one of version 2 of the PROXY protocol.
func proxyHeader(client string) string {
	ip := net.ParseIP(client).To4()
	return "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c" + string(ip) + "\x0a\x00\x00\x09\x00\x63\x00\x50"
}
