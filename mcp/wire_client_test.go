package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// wireClient is a raw server, with the client that is tested at the other end.
type wireClient struct {
	*frameReader
	p       *wirePlay
	end     farcall.Transport
	connect func(ctx context.Context, o *mcp.ClientOptions) (*mcp.Client, error)
	client  *mcp.Client
	results chan string
}

func newWireClient(p *wirePlay) *wireClient {
	c := &wireClient{p: p, results: make(chan string, 100)}
	ours, theirs := farcall.Pipe()
	c.end, c.frameReader = ours, newFrameReader(ours)
	c.connect = func(ctx context.Context, o *mcp.ClientOptions) (*mcp.Client, error) {
		return mcp.Connect(ctx, theirs, o)
	}
	return c
}

func (c *wireClient) begin(string) { c.p.t.Fatal("a client begins with ! connect") }

func (c *wireClient) send(_ string, block []byte) {
	for _, frame := range wireFrames(block) {
		if err := c.end.Write([]byte(frame)); err != nil {
			c.p.t.Fatal(err)
		}
	}
}

func (c *wireClient) do(command string) {
	go func() {
		got, err := c.run(c.p.t.Context(), command)
		if err != nil {
			c.results <- "error: " + err.Error()
			return
		}
		if s, ok := got.(string); ok {
			c.results <- s
			return
		}
		text, err := json.Marshal(got)
		c.results <- string(text) + errorText(err)
	}()
}

func errorText(err error) string {
	if err != nil {
		return err.Error()
	}
	return ""
}

func (c *wireClient) run(ctx context.Context, command string) (any, error) {
	word, rest, _ := strings.Cut(command, " ")
	name, args, _ := strings.Cut(rest, " ")
	if word == "connect" {
		client, err := c.connect(ctx, wireClientOptions(c, rest))
		if err != nil {
			return nil, err
		}
		c.client = client
		return client.Server().Name + " speaks " + client.Server().Revision, nil
	}
	if c.client == nil {
		return nil, errors.New("not connected")
	}
	switch word {
	case "tool":
		return c.client.CallTool(ctx, name, json.RawMessage(args))
	case "tools":
		tools, err := c.client.Tools(ctx)
		var names []string
		for _, t := range tools {
			names = append(names, t.Name)
		}
		return strings.Join(names, " "), err
	case "read":
		return c.client.Read(ctx, rest)
	case "progress":
		return c.client.CallTool(mcp.OnProgress(ctx, func(n spec.ProgressNotificationParams) {
			c.results <- fmt.Sprint("progress ", n.Progress, " ", n.Message)
		}), name, json.RawMessage(args))
	case "give-up":
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		return c.client.CallTool(ctx, name, json.RawMessage(args))
	}
	return nil, fmt.Errorf("what is %q?", command)
}

func wireClientOptions(c *wireClient, era string) *mcp.ClientOptions {
	return &mcp.ClientOptions{
		Name: "client", Version: "1.0", Era: era, Tasks: true,
		Elicit: func(_ context.Context, p *spec.ElicitRequestParams) (*spec.ElicitResult, error) {
			if strings.HasPrefix(p.Message, "Delete") {
				return &spec.ElicitResult{Action: "decline"}, nil
			}
			return &spec.ElicitResult{Action: "accept", Content: []byte(`{"name":"Ada"}`)}, nil
		},
		Sample: func(
			context.Context, *spec.CreateMessageRequestParams,
		) (*spec.CreateMessageResult, error) {
			return &spec.CreateMessageResult{
				Role: "assistant", Content: []mcp.Content{mcp.Text("Paris")},
				Model: "m",
			}, nil
		},
		Roots: func(context.Context) ([]mcp.Root, error) {
			return []mcp.Root{{URI: "file:///work"}}, nil
		},
		OnListChanged: func(kind string) { c.results <- kind + " changed" },
		OnSessionLost: func() { c.results <- "the session was lost" },
	}
}

func (c *wireClient) collect() []wireGot { return c.told(c.frameReader.collect(">")) }

// told adds what the client made of it.
func (c *wireClient) told(got []wireGot) []wireGot {
	for len(c.results) > 0 {
		got = append(got, wireGot{"=", <-c.results})
	}
	return got
}

func (c *wireClient) close() {
	if c.client != nil {
		if err := c.client.Close(); err != nil {
			c.p.t.Error(err)
		}
	}
	c.end.Close()
}

// wireHTTPClient is a raw server over HTTP, with the client that is tested at
// the other end. Its answers go to the request that has waited longest.
type wireHTTPClient struct {
	*wireClient
	got chan wireGot

	mu      sync.Mutex
	waiting map[string][]chan string // by name: get, delete, and none for POST
	over    bool
}

func newWireHTTPClient(p *wirePlay) *wireHTTPClient {
	h := &wireHTTPClient{
		wireClient: newWireClient(p), got: make(chan wireGot, 10_000),
		waiting: map[string][]chan string{},
	}
	h.connect = func(ctx context.Context, o *mcp.ClientOptions) (*mcp.Client, error) {
		o.HTTP = &mcphttp.DialOptions{HTTP: &http.Client{Transport: h}}
		return mcp.Dial(ctx, "http://127.0.0.1/mcp", o)
	}
	return h
}

// RoundTrip implements http.RoundTripper.
func (h *wireHTTPClient) RoundTrip(r *http.Request) (*http.Response, error) {
	name := strings.ToLower(r.Method)
	if r.Method == http.MethodPost {
		name = ""
	}
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body) // from memory
	}
	answer := make(chan string, 1)
	h.mu.Lock()
	if h.over {
		answer <- "405 Method Not Allowed"
	} else {
		h.waiting[name] = append(h.waiting[name], answer)
		h.say(name, r.Method+" "+r.URL.RequestURI())
		for _, key := range []string{
			"Mcp-Session-Id", "MCP-Protocol-Version", "Mcp-Method", "Mcp-Name",
			"Mcp-Param-Region", "Last-Event-ID",
		} {
			if value := r.Header.Get(key); value != "" {
				h.say(name, key+": "+value)
			}
		}
		if len(body) > 0 {
			h.say(name, string(body))
		}
	}
	h.mu.Unlock()
	select {
	case text := <-answer:
		resp := wireResponse(text)
		resp.Request = r
		return resp, nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

func (h *wireHTTPClient) say(name, text string) {
	h.got <- wireGot{name + ">", text}
}

// wireResponse makes an answer of its lines: the status, headers, and the body.
func wireResponse(text string) *http.Response {
	status, rest, _ := strings.Cut(text, "\n")
	code, _ := strconv.Atoi(status[:3])
	r := &http.Response{
		Status: status, StatusCode: code, Proto: "HTTP/1.1", ProtoMajor: 1,
		ProtoMinor: 1, Header: http.Header{}, ContentLength: -1,
	}
	var body strings.Builder
	for line := range strings.Lines(rest) {
		key, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		if ok && body.Len() == 0 && key != "id" && key != "event" && key != "data" &&
			!strings.ContainsAny(key, `{"`) {
			r.Header.Set(key, value)
			continue
		}
		body.WriteString(line)
		if key == "data" { // an event ends with its data
			body.WriteString("\n")
		}
	}
	r.Body = io.NopCloser(strings.NewReader(body.String()))
	return r
}

func (h *wireHTTPClient) send(name string, block []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.waiting[name]) == 0 {
		h.p.t.Fatalf("no request %q waits for %s", name, block)
	}
	h.waiting[name][0] <- string(block)
	h.waiting[name] = h.waiting[name][1:]
}

func (h *wireHTTPClient) collect() (got []wireGot) {
	<-time.After(wireSettle)
	synctest.Wait()
	for len(h.got) > 0 {
		got = append(got, <-h.got)
	}
	slices.SortStableFunc(got, func(a, b wireGot) int { return strings.Compare(a.prefix, b.prefix) })
	return h.told(got)
}

func (h *wireHTTPClient) close() {
	h.mu.Lock()
	h.over = true
	for _, waiting := range h.waiting {
		for _, answer := range waiting {
			answer <- "405 Method Not Allowed"
		}
	}
	h.mu.Unlock()
	h.wireClient.close()
}
