// Command lsp is a language server for plain text over standard input and output: it marks each
// TODO in the documents that an editor has open:
//
//	farcall call initialize '{"capabilities":{}}' --framing header -- go run ./examples/lsp
package main

import (
	"context"
	"strings"
	"unicode/utf16"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/stream"
)

type document struct {
	URI  string `json:"uri"`
	Text string `json:"text,omitzero"`
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
	<-serve(stream.Stdio(stream.Header, nil)).Done()
}

// serve serves one editor. The editor says exit when it is done.
func serve(t farcall.Transport) *farcall.Peer {
	mux := farcall.NewMux()
	serving, exit := context.WithCancel(context.Background())
	farcall.Handle(mux, "initialize", func(context.Context, struct{}) (any, error) {
		// documents come whole
		return map[string]any{"capabilities": map[string]any{"textDocumentSync": 1}}, nil
	})
	farcall.Handle(mux, "shutdown", func(context.Context, struct{}) (any, error) { return nil, nil })
	farcall.HandleNotification(mux, "initialized", func(context.Context, struct{}) error {
		return nil
	})
	farcall.HandleNotification(mux, "exit", func(context.Context, struct{}) error {
		exit()
		return nil
	})
	farcall.HandleNotification(mux, "textDocument/didOpen", func(ctx context.Context, p opened) error {
		return publish(ctx, p.Document.URI, p.Document.Text)
	})
	farcall.HandleNotification(mux, "textDocument/didChange",
		func(ctx context.Context, p changes) error {
			if len(p.Changes) == 0 {
				return nil
			}
			return publish(ctx, p.Document.URI, p.Changes[len(p.Changes)-1].Text)
		})
	mux.IgnoreUnknown() // editors send much more than a server needs
	peer := farcall.NewPeer(t, mux, nil)
	go func() {
		select {
		case <-serving.Done():
			_ = peer.Close()
		case <-peer.Done():
		}
	}()
	return peer
}

// publish tells the editor where the text has TODOs (LSP 3.17, PublishDiagnostics).
func publish(ctx context.Context, uri, text string) error {
	found := diagnostics{uri, []diagnostic{}}
	for n, line := range strings.Split(text, "\n") {
		if at := strings.Index(line, "TODO"); at >= 0 {
			d := diagnostic{Severity: 3, Message: strings.TrimSpace(line[at:])}
			d.Range.Start, d.Range.End = position{n, columns(line[:at])}, position{n, columns(line)}
			found.Diagnostics = append(found.Diagnostics, d)
		}
	}
	return farcall.CallerFrom(ctx).Notify(ctx, "textDocument/publishDiagnostics", found)
}

// columns is the length of a text as LSP counts it, in UTF-16 code units.
func columns(text string) int { return len(utf16.Encode([]rune(text))) }
