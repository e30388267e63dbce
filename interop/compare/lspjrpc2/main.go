// Command lspjrpc2 is examples/lsp with jrpc2.
package main

import (
	"context"
	"os"
	"strings"
	"unicode/utf16"

	"github.com/creachadair/jrpc2"
	"github.com/creachadair/jrpc2/channel"
	"github.com/creachadair/jrpc2/handler"
)

type document struct {
	URI  string `json:"uri"`
	Text string `json:"text"`
}

type opened struct {
	Document document `json:"textDocument"`
}

type changes struct {
	Document document `json:"textDocument"`
	Changes  []struct {
		Text string `json:"text"`
	} `json:"contentChanges"`
}

type position struct {
	Line      int `json:"line"`
	Character int `json:"character"`
}

type diagnostic struct {
	Range struct {
		Start position `json:"start"`
		End   position `json:"end"`
	} `json:"range"`
	Severity int    `json:"severity"`
	Message  string `json:"message"`
}

type diagnostics struct {
	URI         string       `json:"uri"`
	Diagnostics []diagnostic `json:"diagnostics"`
}

func main() {
	serve(channel.LSP(os.Stdin, os.Stdout)).Wait()
}

func serve(ch channel.Channel) *jrpc2.Server {
	var server *jrpc2.Server
	server = jrpc2.NewServer(handler.Map{
		"initialize": handler.New(func(context.Context, struct{}) (any, error) {
			return map[string]any{"capabilities": map[string]any{"textDocumentSync": 1}}, nil
		}),
		"shutdown":    handler.New(func(context.Context) (any, error) { return nil, nil }),
		"initialized": handler.New(func(context.Context, struct{}) error { return nil }),
		"exit":        handler.New(func(context.Context) error { go server.Stop(); return nil }),
		"textDocument/didOpen": handler.New(func(ctx context.Context, p opened) error {
			return publish(ctx, p.Document.URI, p.Document.Text)
		}),
		"textDocument/didChange": handler.New(func(ctx context.Context, p changes) error {
			if len(p.Changes) == 0 {
				return nil
			}
			return publish(ctx, p.Document.URI, p.Changes[len(p.Changes)-1].Text)
		}),
	}, &jrpc2.ServerOptions{AllowPush: true})
	return server.Start(ch)
}

func publish(ctx context.Context, uri, text string) error {
	found := diagnostics{uri, []diagnostic{}}
	for n, line := range strings.Split(text, "\n") {
		if at := strings.Index(line, "TODO"); at >= 0 {
			d := diagnostic{Severity: 3, Message: strings.TrimSpace(line[at:])}
			d.Range.Start, d.Range.End = position{n, columns(line[:at])}, position{n, columns(line)}
			found.Diagnostics = append(found.Diagnostics, d)
		}
	}
	return jrpc2.ServerFromContext(ctx).Notify(ctx, "textDocument/publishDiagnostics", found)
}

// columns is the length of a text as LSP counts it, in UTF-16 code units.
func columns(text string) int { return len(utf16.Encode([]rune(text))) }
