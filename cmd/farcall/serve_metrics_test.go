package main

import (
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// The playground has metrics beside its page, and none where a guard is, since its page is served
// without credentials.
func TestServeMetrics(t *testing.T) {
	t.Parallel()
	open := serve(t)
	if status, text := fetch(t, open.addrs[0]+"/metrics"); status != http.StatusOK ||
		!strings.Contains(text, "\nfarcall_build_info{") {
		t.Errorf("status %d: %.200s", status, text)
	}
	guarded := serve(t, "--guard",
		writeFile(t, "guard:\n  anonymous: true\n  allow:\n    - calls: ['*']\n"))
	if status, text := fetch(t, guarded.addrs[0]+"/metrics"); status == http.StatusOK {
		t.Errorf("with a guard: %.200s", text)
	}
}

// The playground keeps calls that failed, for all who may see its page.
func TestServeKeepsCalls(t *testing.T) {
	t.Parallel()
	open := serve(t)
	if out, err := program(t, "call", open.addrs[0], "fail").CombinedOutput(); err == nil {
		t.Fatalf("it answers %s", out)
	}
	if out, err := program(t, "call", open.addrs[0], "echo", "[1]").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, err := program(t, "mcp", "call", open.addrs[0], "nothing").CombinedOutput()
	if err == nil {
		t.Fatalf("it answers %s", out)
	}
	if out, err = program(t, "admin", "calls", open.addrs[0], "--json").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, want := range []string{`"fail"`, `"error"`, `"nothing"`} {
		if !strings.Contains(string(out), want) {
			t.Errorf("there is no %s in %s", want, out)
		}
	}
	if strings.Contains(string(out), `"echo"`) {
		t.Errorf("a call that succeeded is kept: %s", out)
	}
}

// With a guard each principal has its own failed calls; without a principal there are no calls.
func TestServeKeepsCallsOfPrincipals(t *testing.T) {
	t.Parallel()
	file := writeFile(t, "guard:\n  anonymous: true\n  allow:\n    - calls: ['*']\n")
	callers := map[string][]string{"ann": nil, "ben": nil, "anonymous": nil}
	for _, name := range []string{"ann", "ben"} {
		key := filepath.Join(t.TempDir(), "key")
		if got := says(t, "key", "new", "--id", name, "--out", key, "--guard", file); strings.Contains(
			got, "exit status") {
			t.Fatal(got)
		}
		callers[name] = []string{"--bearer", key}
	}
	at := serve(t, "--log", "off", "--guard", file).addrs[0]
	for name, key := range callers {
		if got := says(t,
			append([]string{"mcp", "call", at, "no_tool_of_" + name}, key...)...); !strings.Contains(got,
			name) {
			t.Fatal(got)
		}
	}
	for name, key := range callers {
		got := says(t, append([]string{"admin", "calls", at, "--json"}, key...)...)
		for of := range callers {
			want := of == name && name != "anonymous"
			if has := strings.Contains(got, "no_tool_of_"+of); has != want {
				t.Errorf("%s sees a call of %s: %v: %s", name, of, has, got)
			}
		}
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
