package control

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/origin"
)

func handler(s *Status, check origin.Policy) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ServeStatus(w, r, check, func() *Status { return s })
	})
}

// ask sends a request that arrived on a loopback address.
func ask(t *testing.T, h http.Handler, method, url string, header ...string) (
	w *httptest.ResponseRecorder,
) {
	t.Helper()
	local := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8080}
	ctx := context.WithValue(t.Context(), http.LocalAddrContextKey, net.Addr(local))
	r := httptest.NewRequestWithContext(ctx, method, url, nil)
	r.Host = "localhost:8080"
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
		} else {
			r.Header.Set(header[i], header[i+1])
		}
	}
	w = httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestStatusJSON(t *testing.T) {
	t.Parallel()
	answer := ask(t, handler(sample(7, 9), origin.Policy{}), "GET", StatusPath)
	if got := answer.Header().Get("Content-Type"); got != "application/json" {
		t.Errorf("Content-Type %q", got)
	}
	var got struct {
		Name      string    `json:"name"`
		Since     time.Time `json:"since"`
		Calls     int64     `json:"calls"`
		Upstreams []struct {
			LastError string              `json:"lastError"`
			P50       float64             `json:"p50Ms"`
			P99       float64             `json:"p99Ms"`
			Stderr    []string            `json:"stderr"`
			Tools     []map[string]string `json:"tools"`
		} `json:"upstreams"`
	}
	body := answer.Body.String()
	if err := jsonv2.Unmarshal([]byte(body), &got); err != nil {
		t.Fatal(err)
	}
	want := sample(7, 9)
	if len(got.Upstreams) != 7 {
		t.Fatalf("got %+v", got)
	}
	if got.Name != want.Name || !got.Since.Equal(want.Since) || got.Calls != want.Calls {
		t.Errorf("got %+v", got)
	}
	if u := got.Upstreams[0]; u.P50 != 0.42 || u.P99 != 12 || u.Stderr == nil || len(u.Tools) != 2 {
		t.Errorf("got %+v, want latencies in milliseconds and lists that are never null", u)
	}
	if got.Upstreams[2].LastError != evil {
		t.Errorf("got %q, want the text as it is", got.Upstreams[2].LastError)
	}
	if strings.Contains(body, "\"P50\"") || strings.Contains(body, "null") {
		t.Errorf("the JSON has something that it must not: %s", body)
	}
}

// Pages of others and names that merely point here get nothing.
func TestRefused(t *testing.T) {
	t.Parallel()
	h := handler(sample(1, 1), origin.Policy{})
	answer := ask(t, h, "GET", StatusPath)
	for name, want := range map[string]string{
		"X-Content-Type-Options": "nosniff", "Cross-Origin-Resource-Policy": "same-origin",
		"Cache-Control": "no-store", "Referrer-Policy": "no-referrer",
	} {
		if got := answer.Header().Get(name); answer.Code != http.StatusOK || got != want {
			t.Errorf("status %d, %s: %q, want %q", answer.Code, name, got, want)
		}
	}
	answer = ask(t, h, "POST", StatusPath)
	if answer.Code != http.StatusMethodNotAllowed || answer.Header().Get("Allow") != "GET, HEAD" {
		t.Errorf("POST: status %d, headers %v", answer.Code, answer.Header())
	}
	for _, header := range [][]string{
		{"Host", "attacker.example"},
		{"Host", "attacker.example:8080", "Origin", "http://attacker.example:8080"},
		{"Origin", "https://attacker.example"},
		{"Origin", "null"},
		{"Sec-Fetch-Site", "cross-site"},
		{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"},
	} {
		answer := ask(t, h, "GET", StatusPath, header...)
		if answer.Code != http.StatusForbidden || strings.Contains(answer.Body.String(), "office") {
			t.Errorf("with %v: status %d, want 403", header, answer.Code)
		}
	}
	allowed := origin.Policy{
		Hosts:   []string{"gateway.internal"},
		Origins: []string{"https://app.example"},
	}
	h = handler(sample(1, 1), allowed)
	answer = ask(t, h, "GET", StatusPath, "Host", "gateway.internal:8080")
	if answer.Code != http.StatusOK {
		t.Errorf("status %d for a host that is allowed", answer.Code)
	}
	answer = ask(t, h, "GET", StatusPath, "Origin", "https://app.example")
	if answer.Code != http.StatusOK {
		t.Errorf("status %d for an origin that is allowed", answer.Code)
	}
}
