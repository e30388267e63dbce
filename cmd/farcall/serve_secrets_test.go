package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/mcp"
)

// TestServeSecrets sends 1,000 secrets through a gateway, as arguments, results and messages of
// errors, and looks for them in its capture, and in the log, the spans and the metrics.
func TestServeSecrets(t *testing.T) {
	t.Parallel()
	upstream := serve(t, "--log", "off")
	random := rand.New(rand.NewPCG(3, 4))
	var planted []string
	plant := func() string {
		const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
		b := make([]byte, 30)
		for i := range b {
			b[i] = letters[random.IntN(len(letters))]
		}
		planted = append(planted, string(b))
		return string(b)
	}
	file := filepath.Join(t.TempDir(), "calls.jsonl")
	metrics := ""
	told := exported(t, nil, func(address string) {
		client, err := mcp.Dial(t.Context(), address+"/mcp", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		for len(planted) < 1000 {
			arguments := map[string]any{
				"password": plant(), "deep": map[string]any{"api_key": []string{plant()}},
				"text": "Authorization: Bearer " + plant(), "token": "ghp_" + plant(),
				"url": fmt.Sprintf("https://u:%s@host/a?access_token=%s", plant(), plant()),
			}
			if _, err := client.CallTool(t.Context(), "echo", arguments); err != nil {
				t.Fatal(err)
			}
			if _, err := client.CallTool(t.Context(), "fail", arguments); err != nil { // its result says so
				t.Fatal(err)
			}
			if _, err := client.CallTool(t.Context(), "sk-"+plant(), arguments); err == nil {
				t.Fatal("there is such a tool")
			}
			if _, err := client.Read(t.Context(), "https://u:"+plant()+"@host/"); err == nil {
				t.Fatal("there is such a resource")
			}
		}
		_, metrics = fetch(t, address+"/metrics")
	}, "serve", "--upstream", "up="+upstream.addrs[0]+"/mcp", "--capture", file, "--capture-keep",
		"frames", "--log-level", "debug")
	captured, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"/v1/traces", "/v1/logs", "tools/call"} {
		if !strings.Contains(told, want) {
			t.Errorf("the collector got no %s", want)
		}
	}
	if !strings.Contains(string(captured), "[redacted:") || !strings.Contains(metrics, "farcall_") {
		t.Error("the capture has no redacted value, or there are no metrics")
	}
	for where, text := range map[string]string{
		"the collector": told, "the metrics": metrics,
		"the capture": string(captured),
	} {
		found := 0
		for _, s := range planted {
			before, after, ok := strings.Cut(text, s)
			if ok && found < 3 {
				t.Errorf("%s in %s: %s|%.80s", s, where, before[max(0, len(before)-300):], after)
			}
			if ok {
				found++
			}
		}
		if found > 0 {
			t.Errorf("%s has %d of %d secrets", where, found, len(planted))
		}
	}
}
