package admin

import (
	"context"
	"flag"
	"html"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/origin"
)

var update = flag.Bool("update", false, "write the elements of the page into testdata/structure.txt")

func handler(s Status) *Handler {
	h := New(func() Status { return s })
	h.now = func() time.Time { return noon }
	return h
}

// ask sends a request that arrived on a loopback address.
func ask(t *testing.T, h http.Handler, method, url string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	local := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8080}
	r := httptest.NewRequestWithContext(context.WithValue(t.Context(), http.LocalAddrContextKey, net.Addr(local)), method, url, nil)
	r.Host = "localhost:8080"
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
		} else {
			r.Header.Set(header[i], header[i+1])
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

var tag = regexp.MustCompile(`<(/?)([a-zA-Z0-9!]+)((?:\s[^<>]*)?)>`)

// outline is the elements of a page, one a line, with what is wrong about them.
// Every < that it finds is a tag: texts and attributes must have theirs escaped.
func outline(page string) (lines, wrong []string) {
	attribute := regexp.MustCompile(`\s+([a-z-]+)(?:="([^"]*)")?`)
	allowed := strings.Fields("aria-hidden aria-label aria-labelledby autocomplete charset class colspan content data-blocked data-keep data-key data-order data-panel data-same data-upstream " +
		"data-title data-tools datetime dir for height hidden href id lang name placeholder rel role scope spellcheck src tabindex title type width alt")
	void := []string{"!doctype", "meta", "link", "img", "input"}
	var stack, ids []string
	for _, m := range tag.FindAllStringSubmatch(page, -1) {
		name := m[2]
		if m[1] == "/" {
			if len(stack) == 0 || stack[len(stack)-1] != name {
				wrong = append(wrong, "</"+name+"> closes nothing")
				continue
			}
			stack = stack[:len(stack)-1]
			continue
		}
		var line strings.Builder
		line.WriteString(strings.Repeat(" ", len(stack)) + name)
		for _, a := range attribute.FindAllStringSubmatch(m[3], -1) {
			switch {
			case name != "!doctype" && !slices.Contains(allowed, a[1]):
				wrong = append(wrong, name+" has the attribute "+a[1])
			case a[1] == "class" || a[1] == "role" || a[1] == "id":
				line.WriteString(" " + a[1] + "=" + a[2])
			case (a[1] == "href" || a[1] == "src") && !regexp.MustCompile(`^(page/|api/status$|#)`).MatchString(a[2]):
				wrong = append(wrong, name+" refers to "+a[2])
			}
			if a[1] == "id" {
				if slices.Contains(ids, a[2]) {
					wrong = append(wrong, "there are two "+a[2])
				}
				ids = append(ids, a[2])
			}
		}
		lines = append(lines, line.String())
		if !slices.Contains(void, name) {
			stack = append(stack, name)
		}
	}
	for _, name := range stack {
		wrong = append(wrong, "<"+name+"> is not closed")
	}
	if strings.Count(page, "<") != len(tag.FindAllString(page, -1)) {
		wrong = append(wrong, "there is a < that is no tag")
	}
	return lines, wrong
}

func TestStructure(t *testing.T) {
	t.Parallel()
	lines, wrong := outline(ask(t, handler(sample(2, 2)), "GET", "/").Body.String())
	for _, w := range wrong {
		t.Error(w)
	}
	got := strings.Join(lines, "\n") + "\n"
	if *update {
		if err := os.WriteFile("testdata/structure.txt", []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/structure.txt")
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the elements are not those of testdata/structure.txt (go test -update writes them):\n%s", got)
	}
}

// What upstreams say is text wherever it is shown.
func TestHostileText(t *testing.T) {
	t.Parallel()
	body := ask(t, handler(sample(7, 9)), "GET", "/").Body.String()
	lines, wrong := outline(body)
	for _, w := range wrong {
		t.Error(w)
	}
	for _, name := range []string{"script", "img"} {
		n := 0
		for _, line := range lines {
			if strings.Fields(line)[0] == name {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%d elements %s, want only the page's own", n, name)
		}
	}
	for _, hidden := range []string{"\u202e", "\u200b", "\U000e0041", "\x1b", "\x07", "\x00"} {
		if strings.Contains(body, hidden) {
			t.Errorf("%+q is on the page, where it cannot be seen", hidden)
		}
	}
	for _, want := range []string{"U+202E", "U+E0041", "ERROR connect ECONNREFUSED", "{{.Name}}", "ملفات", "(2 down) office"} {
		if !strings.Contains(html.UnescapeString(body), want) {
			t.Errorf("the page does not have %q", want)
		}
	}
}

func TestMany(t *testing.T) {
	t.Parallel()
	body := ask(t, handler(sample(40, 500)), "GET", "/").Body.String()
	lines, wrong := outline(body)
	for _, w := range wrong {
		t.Error(w)
	}
	var upstreams, tools int
	for _, line := range lines {
		switch strings.Fields(line)[0] {
		case "tbody":
			upstreams++
		case "li":
			tools++
		}
	}
	if upstreams != 40 || tools != 500 {
		t.Errorf("%d upstreams and %d tools, want 40 and 500", upstreams, tools)
	}
	if len(body) > 400_000 {
		t.Errorf("the page has %d bytes", len(body))
	}
}

// A flood of text from one upstream does not flood the page.
func TestBounds(t *testing.T) {
	t.Parallel()
	s := sample(1, 1)
	flood := strings.Repeat("x", 1<<20)
	u := &s.Upstreams[0]
	u.LastError, u.Target, u.Server, u.Revision, u.State, u.Name = flood, flood, flood, flood, flood, flood
	u.Stderr = slices.Repeat([]string{flood}, 1000)
	u.Tools = []ToolStatus{{Name: flood, Shown: flood, Description: flood, Blocked: flood, Diff: flood + strings.Repeat("\n+", 100_000)}}
	if n := ask(t, handler(s), "GET", "/").Body.Len(); n > 80_000 {
		t.Errorf("the page has %d bytes", n)
	}
}

// The script of the page does not get the tools that it has.
func TestLive(t *testing.T) {
	t.Parallel()
	s := sample(7, 9)
	full := ask(t, handler(s), "GET", "/page/live").Body.String()
	digest := regexp.MustCompile(`data-tools="([0-9a-f]+)"`).FindStringSubmatch(full)
	if digest == nil {
		t.Fatalf("no digest of the tools: %.300s", full)
	}
	short := ask(t, handler(s), "GET", "/page/live?tools="+digest[1]).Body.String()
	if !strings.Contains(full, `id="list"`) || strings.Contains(short, `id="list"`) || !strings.Contains(short, "data-same") {
		t.Error("the tools are sent when they are known, or not when they are not")
	}
	if _, wrong := outline(short); len(wrong) > 0 {
		t.Error(wrong)
	}
	s.Upstreams[6].Tools[0].Description += "!"
	if changed := ask(t, handler(s), "GET", "/page/live?tools="+digest[1]).Body.String(); !strings.Contains(changed, `id="list"`) {
		t.Error("a changed description is not sent")
	}
}

func TestDraining(t *testing.T) {
	t.Parallel()
	for draining, want := range map[bool]string{true: `<span class="badge wait">draining`, false: `<span class="badge ok">serving`} {
		if body := ask(t, handler(Status{Draining: draining}), "GET", "/").Body.String(); !strings.Contains(body, want) {
			t.Errorf("the page does not have %s", want)
		} else if !strings.Contains(body, "There are no upstreams") || !strings.Contains(body, "No upstream has said") {
			t.Error("an empty gateway does not say that it is empty")
		}
	}
}

func TestStatusJSON(t *testing.T) {
	t.Parallel()
	answer := ask(t, handler(sample(7, 9)), "GET", "/api/status")
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
	if len(got.Upstreams) != 7 || got.Name != want.Name || !got.Since.Equal(want.Since) || got.Calls != want.Calls {
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

func TestHeaders(t *testing.T) {
	t.Parallel()
	h := handler(sample(1, 1))
	for path, contentType := range map[string]string{
		"/":               "text/html; charset=utf-8",
		"/page/live":      "text/html; charset=utf-8",
		"/api/status":     "application/json",
		"/page/app.js":    "text/javascript; charset=utf-8",
		"/page/style.css": "text/css; charset=utf-8",
		"/page/icon.svg":  "image/svg+xml",
	} {
		answer := ask(t, h, "GET", path)
		header := answer.Header()
		if !h.Has(path) || answer.Code != http.StatusOK || header.Get("Content-Type") != contentType {
			t.Errorf("%s: %d %s", path, answer.Code, header.Get("Content-Type"))
		}
		csp := header.Get("Content-Security-Policy")
		if !strings.HasPrefix(csp, "default-src 'none'; script-src 'self';") || strings.Contains(csp, "unsafe") || !strings.Contains(csp, "frame-ancestors 'none'") {
			t.Errorf("%s: policy %q", path, csp)
		}
		if header.Get("X-Content-Type-Options") != "nosniff" || header.Get("Referrer-Policy") != "no-referrer" ||
			header.Get("Cross-Origin-Resource-Policy") != "same-origin" || header.Get("Cache-Control") == "" {
			t.Errorf("%s: headers %v", path, header)
		}
	}
	etag := ask(t, h, "GET", "/page/app.js").Header().Get("ETag")
	if answer := ask(t, h, "GET", "/page/app.js", "If-None-Match", etag); answer.Code != http.StatusNotModified {
		t.Errorf("status %d for what has not changed, want 304", answer.Code)
	}
	for _, path := range []string{"/page/", "/page/../admin.go", "/page/page.html", "/other", "/page/assets/app.js"} {
		if answer := ask(t, h, "GET", path); answer.Code != http.StatusNotFound || h.Has(path) {
			t.Errorf("%s: status %d, want 404", path, answer.Code)
		}
	}
	if answer := ask(t, h, "POST", "/api/status"); answer.Code != http.StatusMethodNotAllowed || answer.Header().Get("Allow") != "GET, HEAD" {
		t.Errorf("POST: status %d, headers %v", answer.Code, answer.Header())
	}
}

// Pages of others and names that merely point here get nothing.
func TestRefused(t *testing.T) {
	t.Parallel()
	h := handler(sample(1, 1))
	for _, path := range []string{"/", "/page/live", "/api/status", "/page/app.js"} {
		for _, header := range [][]string{
			{"Host", "attacker.example"},
			{"Host", "attacker.example:8080", "Origin", "http://attacker.example:8080"},
			{"Origin", "https://attacker.example"},
			{"Origin", "null"},
			{"Sec-Fetch-Site", "cross-site"},
			{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "iframe"},
		} {
			if answer := ask(t, h, "GET", path, header...); answer.Code != http.StatusForbidden || strings.Contains(answer.Body.String(), "office") {
				t.Errorf("%s with %v: status %d, want 403", path, header, answer.Code)
			}
		}
	}
	link := []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}
	if answer := ask(t, h, "GET", "/", link...); answer.Code != http.StatusOK {
		t.Errorf("status %d for who follows a link, want 200", answer.Code)
	}
	if answer := ask(t, h, "GET", "/api/status", link...); answer.Code != http.StatusForbidden {
		t.Errorf("status %d for the JSON by a link, want 403", answer.Code)
	}
	h.Origin = origin.Policy{Hosts: []string{"gateway.internal"}, Origins: []string{"https://app.example"}}
	if answer := ask(t, h, "GET", "/", "Host", "gateway.internal:8080"); answer.Code != http.StatusOK {
		t.Errorf("status %d for a host that is allowed", answer.Code)
	}
	if answer := ask(t, h, "GET", "/api/status", "Origin", "https://app.example"); answer.Code != http.StatusOK {
		t.Errorf("status %d for an origin that is allowed", answer.Code)
	}
}
