package main

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/farcall-dev/farcall/internal/race"
)

// noLinger keeps the race detector from sleeping for a second at the end of
// each program.
const noLinger = "atexit_sleep_ms=0"

// needsScripts skips a test that runs the program many times: on Windows, since it uses sh, and
// with the race detector, which then takes minutes; make race-full runs them with it.
func needsScripts(t *testing.T) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("skipped: the scripts use sh")
	}
	race.Skip(t, "a script runs the program many times")
}

// TestScripts runs the scripts in testdata: what a user could have typed,
// against real servers and some that are wrong.
func TestScripts(t *testing.T) {
	needsScripts(t)
	t.Parallel()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(program, filepath.Join(dir, "farcall")); err != nil {
		t.Fatal(err)
	}
	cert, key := writeCertificate(t, dir)
	sock := filepath.Join(dir, "s")
	plain := serve(t, "--listen", "127.0.0.1:0", "--listen", "unix:"+sock, "--log", "off")
	secure := serve(t, "--listen", "127.0.0.1:0", "--tls-cert", cert, "--tls-key", key, "--log", "off")
	vars := map[string]string{
		execVar: "1", "GORACE": noLinger, "PATH": dir + string(os.PathListSeparator) + os.Getenv("PATH"),
		"HOST": strings.TrimPrefix(plain.addrs[0], "http://"), "SOCK": sock,
		"TLSHOST": strings.TrimPrefix(secure.addrs[0], "https://"), "CERT": cert,
	}
	for name, answer := range fakes {
		vars[strings.ToUpper(name)] = fakeServer(t, answer)
	}
	vars["GZIPHOST"] = strings.TrimPrefix(
		serve(t, "--listen", "127.0.0.1:0", "--gzip", "--log", "off").addrs[0], "http://")
	vars["HTML"] = htmlServer(t)
	vars["WSCLOSING"] = closingServer(t)
	vars["REFUSED"] = refusedAddress(t)
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(e *testscript.Env) error {
			for name, value := range vars {
				e.Setenv(name, value)
			}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
	})
}

// exits runs a program that must end with a code: exits 4 farcall call ...
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM [ARGS...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	path, err := exec.LookPath(args[1])
	if args[1] == "farcall" {
		path, err = os.Executable()
	}
	ts.Check(err)
	cmd := exec.Command(path, args[2:]...)
	cmd.Dir = ts.Getenv("WORK")
	cmd.Env = append(os.Environ(), execVar+"=1", "GORACE="+noLinger, "PATH="+ts.Getenv("PATH"))
	cmd.Stdout, cmd.Stderr = ts.Stdout(), ts.Stderr()
	if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		ts.Fatalf("%v", err)
	}
	if got := cmd.ProcessState.ExitCode(); got != want {
		ts.Fatalf("%q: exit status %d, want %d", args[1:], got, want)
	}
}

// fakes are servers that are wrong: what they do with a line, by name.
var fakes = map[string]func(w io.Writer, line string) (more bool){
	"mute":    func(io.Writer, string) bool { return true },
	"closing": func(io.Writer, string) bool { return false },
	"garbage": func(w io.Writer, _ string) bool {
		fmt.Fprint(w, "220 hello\x1b[31m\r\n")
		return true
	},
	"alert": func(w io.Writer, _ string) bool {
		fmt.Fprint(w, "\x15\x03\x01\x00\x02\x02\x46")
		return false
	},
	"web": func(w io.Writer, _ string) bool {
		fmt.Fprint(w, "HTTP/1.1 400 Bad Request\r\n\r\n")
		return false
	},
	"headed": func(w io.Writer, _ string) bool {
		fmt.Fprint(w, "Content-Length: 2\r\n\r\n{}")
		return true
	},
	"tlsport": func(w io.Writer, line string) bool { // when it has read a request of HTTP
		if line == "" {
			fmt.Fprint(w, "\x15\x03\x01\x00\x02\x02\x46")
		}
		return line != ""
	},
	"half": func(w io.Writer, _ string) bool { fmt.Fprint(w, `{"jsonrpc":"2.0",`); return true },
	"neither": func(w io.Writer, _ string) bool {
		fmt.Fprintln(w, `{"jsonrpc":"2.0","id":1}`)
		return true
	},
	"humble": func(w io.Writer, _ string) bool {
		fmt.Fprintln(w, `{"jsonrpc":"2.0","error":{"code":-32601,"message":"Method not found"},"id":1}`)
		return true
	},
	"ancient": func(w io.Writer, line string) bool { // it speaks JSON-RPC 1.0 only
		if strings.Contains(line, "jsonrpc") {
			fmt.Fprintln(w, `{"result":null,"error":{"code":-32600,"message":"what is jsonrpc?"},"id":1}`)
		} else {
			fmt.Fprintln(w, `{"result":"old","error":null,"id":1}`)
		}
		return true
	},
	"asking": func(w io.Writer, line string) bool { // it asks before it answers, and pushes
		switch {
		case strings.Contains(line, `"method":"go"`):
			fmt.Fprint(w,
				`{"jsonrpc":"2.0","method":"tick","params":{"n":1}}`+"\n"+
					`{"jsonrpc":"2.0","method":"ask","params":[],"id":"q"}`+"\n")
		case strings.Contains(line, `"id":"q"`):
			answer, _, _ := strings.Cut(strings.TrimSpace(line), `,"id"`)
			fmt.Fprintf(w, `{"jsonrpc":"2.0","result":%q,"id":1}`+"\n",
				strings.TrimPrefix(answer, `{"jsonrpc":"2.0",`))
		}
		return true
	},
}

// fakeServer serves lines and returns its address.
func fakeServer(t *testing.T, answer func(w io.Writer, line string) bool) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				for lines := bufio.NewScanner(c); lines.Scan() && answer(c, lines.Text()); {
				}
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		wg.Wait()
	})
	return l.Addr().String()
}

// htmlServer is a web site.
func htmlServer(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{
		ReadHeaderTimeout: waitLimit,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			if r.URL.Path == "/rpc" {
				w.WriteHeader(http.StatusNotFound)
			}
			fmt.Fprintln(w, "<html>welcome</html>")
		}),
	}
	var wg sync.WaitGroup
	wg.Go(func() { s.Serve(l) })
	t.Cleanup(func() {
		s.Close()
		wg.Wait()
	})
	return l.Addr().String()
}

// closingServer closes each WebSocket with a status.
func closingServer(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		c.Read(r.Context())
		c.Close(websocket.StatusPolicyViolation, "no \x1b")
	}))
	t.Cleanup(s.Close)
	return "ws" + strings.TrimPrefix(s.URL, "http")
}

// refusedAddress is one that refuses connections: the port of a service (tcpmux) that no system
// runs. One that was closed before may be given to another test.
func refusedAddress(t *testing.T) string {
	t.Helper()
	const address = "127.0.0.1:1"
	if conn, err := net.Dial("tcp", address); err == nil {
		conn.Close()
		t.Fatal("something listens at " + address)
	}
	return address
}

// writeCertificate makes a certificate for 127.0.0.1 that signs itself.
func writeCertificate(t *testing.T, dir string) (cert, key string) {
	t.Helper()
	return writeCertificateOf(t, dir, 1)
}

// writeCertificateOf is writeCertificate with a serial number.
func writeCertificateOf(t *testing.T, dir string, serial int64) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "farcall test"},
		NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		URIs: []*url.URL{{Scheme: "spiffe", Host: "example.org", Path: "/agent/test"}},
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, block := range map[string]*pem.Block{
		cert: {Type: "CERTIFICATE", Bytes: der},
		key:  {Type: "PRIVATE KEY", Bytes: keyDER},
	} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// Ctrl-C cancels the call on the server too, and says so.
func TestInterruptCancels(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("skipped: there is no interrupt to send")
	}
	lines := make(chan string, 10)
	address := fakeServer(t, func(_ io.Writer, line string) bool {
		lines <- line
		return true
	})
	cmd := program(t, "call", "tcp://"+address, "slow")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timeout := time.After(waitLimit)
	next := func() string {
		select {
		case line := <-lines:
			return line
		case <-timeout:
			t.Fatal("the server got nothing")
		}
		return ""
	}
	if line := next(); !strings.Contains(line, `"slow"`) {
		t.Errorf("%s", line)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if line := next(); line != `{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":1}}` {
		t.Errorf("%s", line)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != exitInterrupted ||
		!strings.Contains(stderr.String(), "slow: interrupted") {
		t.Errorf("exit status %d, %s", code, stderr.String())
	}
}
