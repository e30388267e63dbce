package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// cellTime bounds everything that is done with one feature.
const cellTime = 30 * time.Second

// A matrixClient is one client, of one revision over one transport, at one server, of one
// revision behind one transport.
type matrixClient struct {
	*mcp.Client
	client, server         *era.Revision
	clientOver, serverOver string
	stage                  *stage
	tap                    *tap
	name                   string // no other client has it

	changed   chan string // lists
	updated   chan string // resources
	logs      chan string
	listening chan spec.SubscriptionFilter

	mu        sync.Mutex
	questions []string // what the server asked
}

func (v *matrixClient) String() string {
	return fmt.Sprintf("client of %s over %s, server of %s over %s", v.client.Name, v.clientOver,
		v.server.Name, v.serverOver)
}

// options are those of a client that can be asked everything.
func (v *matrixClient) options() *mcp.ClientOptions {
	return &mcp.ClientOptions{
		Name: v.name, Version: "1", Era: v.client.Name, NoCache: true, Tasks: true, Timeout: cellTime,
		LogLevel: spec.LogEmergency, // what is logged is of interest to one feature alone
		Elicit: func(_ context.Context, p *spec.ElicitRequestParams) (*spec.ElicitResult, error) {
			if p.Mode == spec.ElicitURL {
				v.note("visit " + p.URL)
				return &spec.ElicitResult{Action: spec.ElicitAccept}, nil
			}
			v.note(p.Message)
			return &spec.ElicitResult{
				Action:  spec.ElicitAccept,
				Content: append(jsonrpc.AppendString(jsonrpc.Raw(`{"name":`), v.name), '}'),
			}, nil
		},
		Sample: func(
			_ context.Context, p *spec.CreateMessageRequestParams,
		) (*spec.CreateMessageResult, error) {
			v.note(p.Messages[0].Content[0].Text)
			return &spec.CreateMessageResult{
				Role: "assistant", Model: "atlas",
				Content: []mcp.Content{mcp.Text("ask " + v.name)},
			}, nil
		},
		Roots: func(context.Context) ([]spec.Root, error) {
			return []spec.Root{{URI: "file:///" + v.name}}, nil
		},
		OnLog: func(p *spec.LoggingMessageNotificationParams) {
			v.logs <- p.Level + " " + p.Logger + " " + string(p.Data)
		},
		OnListChanged:     func(kind string) { v.changed <- kind },
		OnResourceUpdated: func(uri string) { v.updated <- uri },
		OnListening:       func(granted spec.SubscriptionFilter) { v.listening <- granted },
	}
}

func (v *matrixClient) note(question string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.questions = append(v.questions, question)
}

// asked returns what was asked since the last time.
func (v *matrixClient) asked() (questions []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	questions, v.questions = v.questions, nil
	return questions
}

// logged forgets what was logged.
func (v *matrixClient) logged() {
	for len(v.logs) > 0 {
		<-v.logs
	}
}

// tool calls a tool and returns the text of its result.
func (v *matrixClient) tool(ctx context.Context, name string, args any) (string, error) {
	r, err := v.CallTool(ctx, name, args)
	switch {
	case err != nil:
		return "", fmt.Errorf("tool %s: %w", name, err)
	case r.IsError:
		return "", fmt.Errorf("tool %s: %w", name, &mcp.ToolError{Result: r})
	}
	return textOf(r), nil
}

func textOf(r *mcp.ToolResult) string {
	var texts []string
	for _, c := range r.Content {
		if c.Type == spec.TypeText {
			texts = append(texts, c.Text)
		}
	}
	return strings.Join(texts, "\n")
}

// failed returns the text with which a tool has failed.
func failed(err error) (text string, ok bool) {
	if e := (*mcp.ToolError)(nil); errors.As(err, &e) {
		return e.Error(), true
	}
	return "", false
}

// differ is the error for what is not as it must be.
func differ(what string, got, want any) error {
	if g, w := fmt.Sprintf("%v", got), fmt.Sprintf("%v", want); g != w {
		return fmt.Errorf("%s: got %.500s, want %.500s", what, g, w)
	}
	return nil
}

// A tap has what goes over the wire between clients and the gateway. One client
// at a time makes one call at a time.
type tap struct{ records chan farcall.Record }

func newTap() *tap { return &tap{records: make(chan farcall.Record, 10_000)} }

func (t *tap) record(_ context.Context, r farcall.Record) {
	if r.Notification || r.Outgoing {
		return
	}
	r.Request, r.Response = append(jsonrpc.Raw(nil), r.Request...),
		append(jsonrpc.Raw(nil), r.Response...)
	select {
	case t.records <- r:
	default: // no client follows it
	}
}

// forget drops what has come.
func (t *tap) forget() {
	for len(t.records) > 0 {
		<-t.records
	}
}

// answer returns the result, and the error, of the next call of a method as they
// were on the wire, when all its rounds are over.
func (t *tap) answer(
	ctx context.Context, method string,
) (result jsonrpc.Raw, wire *jsonrpc.Error, err error) {
	for {
		select {
		case r := <-t.records:
			if r.Method != method {
				continue
			}
			if raw := scan.Member(r.Response, "error"); raw != nil {
				wire = new(jsonrpc.Error)
				return nil, wire, jsonv2.Unmarshal(raw, wire)
			}
			result := scan.Member(r.Response, "result")
			if string(scan.Member(result, "resultType")) == `"`+spec.ResultInputRequired+`"` {
				continue
			}
			return result, nil, nil
		case <-ctx.Done():
			return nil, nil, fmt.Errorf("no answer to %s was recorded", method)
		}
	}
}
