package interop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gorilla "github.com/gorilla/websocket"
	"github.com/sourcegraph/jsonrpc2"
	"github.com/sourcegraph/jsonrpc2/websocket"
)

// goplsVersion needs no newer Go than this module.
const goplsVersion = "v0.23.0"

// gopls installs the language server of Go and returns its path.
func gopls(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	install := exec.CommandContext(t.Context(), "go", "install",
		"golang.org/x/tools/gopls@"+goplsVersion)
	install.Dir = dir
	// As CI builds, so that much of it is built already.
	install.Env = append(os.Environ(), "GOBIN="+dir, "GOFLAGS=-trimpath", "CGO_ENABLED=0")
	if out, err := install.CombinedOutput(); err != nil {
		missing(t, fmt.Sprintf("gopls cannot be installed: %v\n%s", err, out))
	}
	return filepath.Join(dir, "gopls")
}

const program1 = `package main

import "fmt"

// greet says hello.
func greet(name string) string { return "Hello, " + name }

func main() {
	fmt.Println(greet("you"))
}
`

// workspace makes a module with one file and returns its directory.
func workspace(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":  "module example.com/hello\n\ngo 1.26\n",
		"main.go": program1,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// editor is a language client.
type editor struct {
	conn *jsonrpc2.Conn
	told chan *jsonrpc2.Request       // what the server asks and tells
	last map[string]*jsonrpc2.Request // of these, the last of each method
	hold chan struct{}                // workspace/configuration is answered when it is closed
}

func newEditor(ctx context.Context, stream jsonrpc2.ObjectStream) *editor {
	e := &editor{
		told: make(chan *jsonrpc2.Request, 1000), last: map[string]*jsonrpc2.Request{},
		hold: make(chan struct{}),
	}
	handler := jsonrpc2.AsyncHandler(jsonrpc2.HandlerWithError(e.handle).SuppressErrClosed())
	e.conn = jsonrpc2.NewConn(ctx, stream, handler, jsonrpc2.SetLogger(log.New(io.Discard, "", 0)))
	return e
}

func (e *editor) handle(ctx context.Context, _ *jsonrpc2.Conn, req *jsonrpc2.Request) (any, error) {
	e.told <- req
	switch req.Method {
	case "workspace/configuration":
		select {
		case <-e.hold:
		case <-ctx.Done():
		}
		var p struct{ Items []any }
		err := json.Unmarshal(*req.Params, &p)
		return make([]struct{}, len(p.Items)), err
	}
	return nil, nil
}

// await waits until the server has asked or told each of the methods at least
// once.
func (e *editor) await(t *testing.T, methods ...string) {
	t.Helper()
	deadline := time.After(waitLimit)
	for {
		missing := slices.DeleteFunc(slices.Clone(methods), func(m string) bool {
			return e.last[m] != nil
		})
		if len(missing) == 0 {
			return
		}
		select {
		case req := <-e.told:
			e.last[req.Method] = req
		case <-e.conn.DisconnectNotify():
			t.Fatalf("the connection has ended before there was %q", missing)
		case <-deadline:
			t.Fatalf("there was no %q", missing)
		}
	}
}

// call makes a call that must succeed and returns the result.
func (e *editor) call(t *testing.T, method string, params any) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	var result json.RawMessage
	if err := e.conn.Call(ctx, method, params, &result); err != nil {
		t.Fatalf("%s: %v", method, err)
	}
	return string(result)
}

func (e *editor) notify(t *testing.T, method string, params any) {
	t.Helper()
	if err := e.conn.Notify(t.Context(), method, params); err != nil {
		t.Fatalf("%s: %v", method, err)
	}
}

// ends waits for the end of the connection.
func (e *editor) ends(t *testing.T) {
	t.Helper()
	select {
	case <-e.conn.DisconnectNotify():
	case <-time.After(waitLimit):
		t.Error("the connection does not end")
	}
	e.conn.Close()
}

type object = map[string]any

// session is one session with a language server, from its beginning to its end.
func (e *editor) session(t *testing.T, dir string) {
	uri := "file://" + filepath.Join(dir, "main.go")
	at := func(line, character int) object {
		return object{
			"textDocument": object{"uri": uri}, "position": object{"line": line, "character": character},
		}
	}
	told := e.call(t, "initialize", object{
		"processId": os.Getpid(), "rootUri": "file://" + dir,
		"workspaceFolders": []object{{"uri": "file://" + dir, "name": "hello"}},
		"capabilities": object{
			"workspace": object{
				"configuration": true, "didChangeWatchedFiles": object{"dynamicRegistration": true},
			},
			"window":       object{"workDoneProgress": true},
			"textDocument": object{"documentSymbol": object{"hierarchicalDocumentSymbolSupport": true}},
		},
	})
	if !strings.Contains(told, `"name":"gopls"`) {
		t.Fatalf("initialize = %s", told)
	}
	e.notify(t, "initialized", object{})
	e.await(t, "workspace/configuration", "window/workDoneProgress/create")
	e.cancels(t, at(8, 14))
	e.await(t, "client/registerCapability", "$/progress")
	e.notify(t, "textDocument/didOpen",
		object{"textDocument": object{"uri": uri, "languageId": "go", "version": 1, "text": program1}})
	e.await(t, "textDocument/publishDiagnostics")

	if got := e.call(t, "textDocument/hover", at(8, 14)); !strings.Contains(got, "greet says hello.") {
		t.Errorf("hover = %s", got)
	}
	if got := e.call(t, "textDocument/completion", at(8, 8)); !strings.Contains(got,
		`"label":"Println"`) {
		t.Errorf("completion = %.300s", got)
	}
	if got := e.call(t, "textDocument/documentSymbol",
		at(0, 0)); !strings.Contains(got, `"name":"greet"`) || !strings.Contains(got, `"name":"main"`) {
		t.Errorf("documentSymbol = %s", got)
	}

	var wire *jsonrpc2.Error
	err := e.conn.Call(t.Context(), "no/such", nil, nil)
	if !errors.As(err, &wire) || wire.Code != jsonrpc2.CodeMethodNotFound {
		t.Errorf("no/such: %v", err)
	}
	if got := e.call(t, "shutdown", nil); got != "null" {
		t.Errorf("shutdown = %s", got)
	}
	e.notify(t, "exit", nil)
}

// cancels gives a call up that the server cannot answer yet, for it has asked for
// its configuration first.
func (e *editor) cancels(t *testing.T, position object) {
	t.Helper()
	defer close(e.hold)
	id := jsonrpc2.ID{Str: "the/one 9007199254740993", IsString: true}
	w, err := e.conn.DispatchCall(t.Context(), "textDocument/hover", position, jsonrpc2.PickID(id))
	if err != nil {
		t.Fatal(err)
	}
	e.notify(t, "$/cancelRequest", object{"id": id})
	e.hold <- struct{}{}
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	var wire *jsonrpc2.Error
	if err := w.Wait(ctx, nil); !errors.As(err, &wire) || wire.Code != -32800 {
		t.Errorf("a cancelled call: %v", err)
	}
}

// A language server behind the gateway, for editors on every kind of connection:
// each has its own process, which ends with the connection.
func TestGatewayLanguageServer(t *testing.T) {
	t.Parallel()
	server := []string{
		"--profile", "raw", "--framing", "header", "--env", "GOPLSCACHE=" + t.TempDir(),
		"--", gopls(t), "serve",
	}
	f := starts(t, append([]string{"bridge", "127.0.0.1:0"}, server...)...)
	overTCP := func(t *testing.T) jsonrpc2.ObjectStream { return dialHeader(t, f.address) }
	overWebSocket := func(t *testing.T) jsonrpc2.ObjectStream {
		conn, _, err := gorilla.DefaultDialer.DialContext(t.Context(), "ws://"+f.address+"/rpc/ws", nil)
		if err != nil {
			t.Fatal(err)
		}
		return websocket.NewObjectStream(conn)
	}
	t.Run("TCP and WebSocket", func(t *testing.T) { // at the same time
		var both sync.WaitGroup
		for name, open := range map[string]func(*testing.T) jsonrpc2.ObjectStream{
			"TCP":       overTCP,
			"WebSocket": overWebSocket,
		} {
			e, dir := newEditor(t.Context(), open(t)), workspace(t)
			both.Go(func() {
				t.Run(name, func(t *testing.T) {
					e.session(t, dir)
					e.ends(t)
				})
			})
		}
		both.Wait()
		onlyLeft(t, f, "gopls")
	})
	t.Run("gone without a word", func(t *testing.T) {
		e := newEditor(t.Context(), overTCP(t))
		e.call(t, "initialize", object{"capabilities": object{}})
		e.conn.Close()
		onlyLeft(t, f, "gopls")
	})
	t.Run("stdio", func(t *testing.T) {
		cmd := exec.Command(farcallPath,
			append([]string{"bridge", "stdio", "--log", "off"}, server...)...)
		marked(t, cmd)
		cmd.Stderr = os.Stderr
		stdin, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		stdout, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		e := newEditor(t.Context(),
			jsonrpc2.NewBufferedStream(&pipes{stdout, stdin}, jsonrpc2.VSCodeObjectCodec{}))
		e.session(t, workspace(t))
		e.ends(t)
		if err := cmd.Wait(); err != nil {
			t.Errorf("farcall bridge: %v", err)
		}
	})
}

// dialHeader connects to an address, for messages with Content-Length.
func dialHeader(t *testing.T, address string) jsonrpc2.ObjectStream {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	return jsonrpc2.NewBufferedStream(conn, jsonrpc2.VSCodeObjectCodec{})
}

// pipes are the two ends of a child's standard streams.
type pipes struct {
	io.Reader
	io.WriteCloser
}

// onlyLeft waits until none of the processes that the gateway has started are of
// the program.
func onlyLeft(t *testing.T, f *far, program string) {
	t.Helper()
	for late := time.After(waitLimit); ; {
		left := slices.DeleteFunc(processes(f.dir), func(line string) bool {
			_, command, _ := strings.Cut(line, " ")
			name, _, _ := strings.Cut(command, " ")
			return filepath.Base(name) != program
		})
		if len(left) == 0 {
			return
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-late:
			t.Errorf("these are left: %q", left)
			return
		}
	}
}
