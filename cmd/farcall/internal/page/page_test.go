package page_test

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/cmd/farcall/internal/page"
)

func get(t *testing.T, h http.Handler, path string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// Everything that the page and its parts refer to is served from here, and
// nothing is inline, which the policy would refuse.
func TestReferences(t *testing.T) {
	t.Parallel()
	p, err := page.New()
	if err != nil {
		t.Fatal(err)
	}
	reference := regexp.MustCompile(`(?:href|src)="(/[^"]+)"|from '\.(/[^']+)'`)
	inline := regexp.MustCompile(`<script(?:>| [^>]*[^"]>)|<style| style=| on[a-z]+="`)
	elsewhere := regexp.MustCompile(`(?:https?:)?//[a-z0-9-]+\.[a-z0-9.-]+`)
	seen := map[string]bool{}
	queue := []string{"/"}
	for len(queue) > 0 {
		path := queue[0]
		queue = queue[1:]
		if seen[path] {
			continue
		}
		seen[path] = true
		answer := get(t, p, path)
		if answer.Code != http.StatusOK || !p.Has(path) {
			t.Errorf("%s is referred to and not served", path)
			continue
		}
		if h := answer.Header(); h.Get("Content-Type") == "" || h.Get("ETag") == "" || !strings.HasPrefix(h.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s has the headers %v", path, h)
		}
		body := answer.Body.String()
		if strings.HasPrefix(answer.Header().Get("Content-Type"), "text/html") && inline.MatchString(body) {
			t.Errorf("%s has something inline: %s", path, inline.FindString(body))
		}
		if found := strings.ReplaceAll(strings.Join(elsewhere.FindAllString(body, -1), " "), "http://www.w3.org", ""); found != "" {
			t.Errorf("%s refers to another host: %s", path, found)
		}
		for _, m := range reference.FindAllStringSubmatch(body, -1) {
			if m[1] != "" {
				queue = append(queue, m[1])
			} else {
				queue = append(queue, "/page"+m[2])
			}
		}
	}
	if len(seen) < 8 {
		t.Errorf("only %d parts were found: %v", len(seen), seen)
	}
}

func TestUnchangedIsNotSentAgain(t *testing.T) {
	t.Parallel()
	p, err := page.New()
	if err != nil {
		t.Fatal(err)
	}
	etag := get(t, p, "/").Header().Get("ETag")
	if answer := get(t, p, "/", "If-None-Match", etag); answer.Code != http.StatusNotModified || answer.Body.Len() > 0 {
		t.Errorf("status %d with %d bytes, want 304 with none", answer.Code, answer.Body.Len())
	}
	if answer := get(t, p, "/page/../page.go"); answer.Code != http.StatusNotFound {
		t.Errorf("status %d for a path that is not served", answer.Code)
	}
}
