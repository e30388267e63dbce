package tap

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/capture"
)

// recording returns a recorder, and what ends it and returns the frames.
func recording(t *testing.T) (*capture.Recorder, func() []string) {
	t.Helper()
	var out bytes.Buffer
	r, err := capture.New(&capture.Options{Out: &out, Raw: true})
	if err != nil {
		t.Fatal(err)
	}
	return r, func() (frames []string) {
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		in, err := capture.NewReader(&out)
		if err != nil {
			t.Fatal(err)
		}
		for {
			rec, err := in.Next()
			if errors.Is(err, io.EOF) {
				return frames
			}
			if err != nil {
				t.Fatal(err)
			}
			if rec.Type != "frame" {
				continue
			}
			data, err := rec.Data()
			if err != nil {
				t.Fatal(err)
			}
			frames = append(frames, fmt.Sprintf("%d %s %s", rec.Conn, rec.Dir, data))
		}
	}
}

func expect(t *testing.T, got []string, want ...string) {
	t.Helper()
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("frames:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestPipe(t *testing.T) {
	t.Parallel()
	r, frames := recording(t)
	client, a := net.Pipe()
	b, server := net.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- Pipe(r, &capture.Record{Transport: "tcp"}, a, b) }()
	in := bufio.NewReader(server)
	back := bufio.NewReader(client)
	for _, text := range []string{"{\"a\":1}\n", "garbage\xff\n"} {
		io.WriteString(client, text)
		if got, err := in.ReadString('\n'); got != text || err != nil {
			t.Fatalf("the server got %q, %v", got, err)
		}
		io.WriteString(server, text)
		if got, err := back.ReadString('\n'); got != text || err != nil {
			t.Fatalf("the client got %q, %v", got, err)
		}
	}
	client.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	server.Close()
	expect(t, frames(), `1 up {"a":1}`, `1 down {"a":1}`, "1 up garbage\xff", "1 down garbage\xff")
}

func TestHTTP(t *testing.T) {
	t.Parallel()
	r, frames := recording(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch {
		case r.Host != r.Context().Value(http.LocalAddrContextKey).(net.Addr).String() ||
			r.Header.Get("Origin") == "null":
			w.WriteHeader(http.StatusForbidden)
		case strings.Contains(string(body), "initialize"):
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Mcp-Session-Id", "s1")
			io.WriteString(w, `{"id":1,"result":{}}`)
		case strings.Contains(string(body), "stream"):
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, "data: {\"method\":\"n\"}\n\ndata: {\"id\":2,\"result\":1}\n\n")
		default:
			w.WriteHeader(http.StatusAccepted)
		}
	}))
	defer server.Close()
	to, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(NewHandler(r, to, server.Client().Transport,
		slog.New(slog.DiscardHandler)))
	defer front.Close()
	post := func(body, session string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, front.URL+"/mcp",
			strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		if session != "" {
			req.Header.Set("Mcp-Session-Id", session)
		}
		resp, err := front.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		got, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(got)
	}
	if code, got := post(`{"method":"other"}`, ""); code != http.StatusAccepted || got != "" {
		t.Error(code, got)
	}
	if code, got := post(`{"id":1,"method":"initialize"}`, ""); code != http.StatusOK ||
		got != `{"id":1,"result":{}}` {
		t.Error(code, got)
	}
	if _, got := post(`{"id":2,"method":"stream"}`, "s1"); got !=
		"data: {\"method\":\"n\"}\n\ndata: {\"id\":2,\"result\":1}\n\n" {
		t.Error(got)
	}
	expect(t, frames(),
		`1 up {"method":"other"}`,
		`2 up {"id":1,"method":"initialize"}`, `2 down {"id":1,"result":{}}`,
		`2 up {"id":2,"method":"stream"}`, `2 down {"method":"n"}`, `2 down {"id":2,"result":1}`)
}

// TestEarlyAnswer: a server may begin its answer before it has read all of the request.
func TestEarlyAnswer(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		both := http.NewResponseController(w)
		w.Header().Set("Content-Type", "text/event-stream")
		_, err := fmt.Fprint(w, "data: 1\n\n")
		if err = errors.Join(both.EnableFullDuplex(), err, both.Flush()); err != nil {
			t.Error(err)
		}
		body, err := io.ReadAll(r.Body)
		fmt.Fprintf(w, "data: %s %v\n\n", body, err)
	}))
	defer server.Close()
	to, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	r, ended := recording(t)
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	front := httptest.NewServer(NewHandler(r, to, transport, slog.New(slog.DiscardHandler)))
	defer front.Close()
	read, write := io.Pipe()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, front.URL, read)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	first, err := lines.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(write, "{}"); err != nil {
		t.Fatal(err)
	}
	write.Close()
	rest, err := io.ReadAll(lines)
	if err != nil || first+string(rest) != "data: 1\n\ndata: {} <nil>\n\n" {
		t.Errorf("%s%s %v", first, rest, err)
	}
	expect(t, ended(), "1 down 1", "1 up {}", "1 down {} <nil>")
}
