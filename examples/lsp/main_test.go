package main

import (
	"context"
	"net"
	"os"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/leak"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/stream"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

// An editor's initialize, as it was recorded, binds; documents are answered with diagnostics.
func TestEditor(t *testing.T) {
	initialize, err := os.ReadFile("../../testdata/lsp-initialize.json")
	if err != nil {
		t.Fatal(err)
	}
	var recorded jsonrpc.Batch
	if err := new(jsonrpc.Decoder).Decode(initialize, &recorded); err != nil ||
		recorded.Messages[0].Err != nil {
		t.Fatal(err, recorded.Messages)
	}
	server := make(chan diagnostics, 1)
	mux := farcall.NewMux()
	farcall.HandleNotification(mux, "textDocument/publishDiagnostics",
		func(_ context.Context, d diagnostics) error {
			server <- d
			return nil
		})
	a, b := net.Pipe()
	peer := serve(stream.New(a, stream.Header, nil))
	editor := farcall.NewPeer(stream.New(b, stream.Header, nil), mux, nil)
	defer editor.Close()

	ctx := t.Context()
	var capabilities struct {
		Capabilities struct {
			Sync int `json:"textDocumentSync"`
		} `json:"capabilities"`
	}
	if err := editor.Call(ctx, "initialize", recorded.Messages[0].Params, &capabilities); err != nil ||
		capabilities.Capabilities.Sync != 1 {
		t.Fatal(capabilities, err)
	}
	send := func(method, params string) {
		t.Helper()
		if err := editor.Notify(ctx, method, jsonrpc.Raw(params)); err != nil {
			t.Fatal(err)
		}
	}
	send("initialized", `{}`)
	send("textDocument/didOpen",
		`{"textDocument":{"uri":"file:///a","languageId":"text","version":1,"text":"one\nxü😀 `+
			`TODO two \n"}}`)
	if d := <-server; d.URI != "file:///a" || len(d.Diagnostics) != 1 ||
		d.Diagnostics[0].Message != "TODO two" || d.Diagnostics[0].Range.Start != (position{1, 5}) {
		t.Errorf("%+v", d)
	}
	send("textDocument/didChange",
		`{"textDocument":{"uri":"file:///a","version":2},"contentChanges":[{"text":"done"}]}`)
	if d := <-server; len(d.Diagnostics) != 0 {
		t.Errorf("%+v", d)
	}
	if err := editor.Call(ctx, "shutdown", nil, nil); err != nil {
		t.Error(err)
	}
	if err := editor.Notify(ctx, "exit", nil); err != nil {
		t.Error(err)
	}
	<-peer.Done()
}
