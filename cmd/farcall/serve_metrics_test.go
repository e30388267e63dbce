package main

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// The playground has metrics beside its page, and none where a guard is, since its page is served
// without credentials.
func TestServeMetrics(t *testing.T) {
	t.Parallel()
	open := serve(t)
	if status, text := fetch(t, open.addrs[0]+"/metrics"); status != http.StatusOK || !strings.Contains(text, "\nfarcall_build_info{") {
		t.Errorf("status %d: %.200s", status, text)
	}
	guarded := serve(t, "--guard", writeFile(t, "guard:\n  anonymous: true\n  allow:\n    - calls: ['*']\n"))
	if status, text := fetch(t, guarded.addrs[0]+"/metrics"); status == http.StatusOK {
		t.Errorf("with a guard: %.200s", text)
	}
}

func fetch(t *testing.T, url string) (status int, text string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(body)
}
