package main

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/cobra"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcptest"
	"github.com/farcall-dev/farcall/stream"
)

func TestSplitLine(t *testing.T) {
	for line, want := range map[string]string{
		``:                                    ``,
		`  a  b=c `:                           `a;b=c`,
		`a 'b c' d="e \" f" g\ h`:             `a;b c;d=e " f;g h`,
		`echo {"a": "} |", "b": [1, 2]} x`:    `echo;{"a": "} |", "b": [1, 2]};x`,
		`t list=[1, 2] o:={"a": 1} | jq -c .`: `t;list=[1, 2];o:={"a": 1}|jq -c .`,
		`a b|c`:                               `a;b|c`,
		`a "|" | grep '|'`:                    `a;||grep '|'`,
		`a [1, 2`:                             `a;[1, 2`,
		`a ''`:                                `a;`,
		`""{`:                                 `{`,
		`"" a`:                                `;a`,
	} {
		words, piped, err := splitLine(line)
		got := strings.Join(words, ";")
		if piped != "" {
			got += "|" + piped
		}
		if err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", line, got, err, want)
		}
	}
	for _, line := range []string{`a 'b`, `a "b\"`, `| jq`, `a |`} {
		if words, piped, err := splitLine(line); err == nil {
			t.Errorf("%s: %q, %q", line, words, piped)
		}
	}
}

// lockedText is what several goroutines print.
type lockedText struct {
	mu sync.Mutex
	strings.Builder
}

func (l *lockedText) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Builder.Write(b)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Builder.String()
}

// typed runs a shell in which a user types, and returns what is printed.
func typed(t *testing.T, target, keys string) string {
	t.Helper()
	out := new(lockedText)
	e := &env{stdin: strings.NewReader(""), stdout: out, stderr: out, getenv: func(string) string {
		return ""
	}}
	s := &shell{mcpRemote: newMCPRemote(e), protocol: "auto"}
	s.era, s.timeout = "auto", defaultTimeout
	in, keyboard := io.Pipe()
	s.attach(in, "")
	defer s.prompt.Close()
	defer keyboard.Close()
	go func() { _, _ = io.WriteString(keyboard, keys) }()
	cmd := &cobra.Command{}
	cmd.SetContext(t.Context())
	if err := s.begin(cmd, []string{target}, nil); err != nil {
		t.Errorf("%v", err)
	}
	return out.String()
}

// A user completes names, arguments and values, and answers what the server asks in between.
func TestShell(t *testing.T) {
	server := mcp.NewServer("asking", "1", nil)
	type who struct {
		Name string `json:"name"`
	}
	mcp.AddTool(server, mcp.Tool{Name: "greet_all"}, func(ctx context.Context, in struct {
		Tone string `json:"tone" enum:"kind,curt"`
		Loud bool   `json:"loud,omitzero"`
	},
	) (string, error) {
		a, err := mcp.Elicit[who](ctx, "Who?")
		if err != nil {
			return "", err
		}
		return in.Tone + " " + a.Name, nil
	})
	mcp.AddTool(server, mcp.Tool{Name: "grow"}, func(context.Context, struct{}) (string, error) {
		return "grown", nil
	})
	out := typed(t, mcptest.Listen(t, server),
		"gree\tto\tk\tlo\tt\t\rAda\r"+"gr\t\t\x03"+"call grow\r"+"nothing\r"+"\\q\r")
	for _, want := range []string{
		"2 tools", "Who?", "kind Ada", "greet_all  grow", "grown",
		"Unknown tool: nothing", `Its tools are: greet_all, grow.`,
	} {
		if !strings.Contains(out, want) {
			t.Errorf("there is no %q", want)
		}
	}
	if t.Failed() {
		t.Logf("%q", out)
	}
}

// A server of other JSON-RPC calls its caller, who answers.
func TestShellJSONRPC(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	mux := farcall.NewMux()
	farcall.Handle(mux, "ask", func(ctx context.Context, _ struct{}) (string, error) {
		var name string
		err := farcall.CallerFrom(ctx).Call(ctx, "name", nil, &name)
		return "hello " + name, err
	}, "Ask the caller.")
	var served sync.WaitGroup
	served.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			p := farcall.NewPeer(stream.New(conn, stream.NDJSON, nil), mux, nil)
			defer p.Close()
		}
	})
	defer served.Wait()
	defer l.Close()
	out := typed(t, "tcp://"+l.Addr().String(), "as\t\rAda\rcall ask\r\r\\q\r")
	for _, want := range []string{
		"so JSON-RPC is spoken", "The server calls name", "hello Ada",
		"Method not found",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("there is no %q", want)
		}
	}
	if t.Failed() {
		t.Logf("%q", out)
	}
}

// What a server names reaches neither the terminal as it is nor the shell of the user.
func TestShellCompleteOdd(t *testing.T) {
	e := &env{stdout: io.Discard, stderr: io.Discard}
	s := &shell{mcpRemote: newMCPRemote(e), doc: &openRPC{}}
	for _, name := range []string{"zok", "z\x1b[2J", "z a", "z'", `z\`, "z|id"} {
		s.doc.Methods = append(s.doc.Methods, method{Name: name})
	}
	s.kept = &kept{}
	for line, want := range map[string]string{"z": "zok", "call z": "zok", `\q`: `\q`, "a | z": ""} {
		if _, words := s.complete(line); strings.Join(words, ";") != want {
			t.Errorf("%q: %q, want %q", line, words, want)
		}
	}
	if err := s.watch(t.Context(), []string{"1e-12", "x"}, ""); err == nil {
		t.Error("a watch without a pause")
	}
}
