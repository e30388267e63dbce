package mcptest

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/spec"
)

type trip struct {
	City string `json:"city"`
}

// newWeather returns a server that asks the user, and reports progress.
func newWeather(description string) *mcp.Server {
	s := mcp.NewServer("weather", "1.0.0", nil)
	tool := mcp.Tool{Name: "forecast", Description: description}
	mcp.AddTool(s, tool, func(ctx context.Context, _ struct{}) (string, error) {
		in, err := mcp.Elicit[trip](ctx, "Which city?")
		if err != nil {
			return "", err
		}
		return "Rain in " + in.City, mcp.Progress(ctx, 1, 1, "done")
	})
	return s
}

// asked is a client with a user that wants to know about Berlin.
func asked() *mcp.ClientOptions {
	return &mcp.ClientOptions{Elicit: func(
		context.Context, *spec.ElicitRequestParams,
	) (*spec.ElicitResult, error) {
		return &spec.ElicitResult{Action: "accept", Content: []byte(`{"city":"Berlin"}`)}, nil
	}}
}

// silent are the revisions without elicitation.
var silent = map[string]bool{"2024-11-05": true, "2025-03-26": true}

// forecast lists the tools and calls the one of newWeather. Revisions without elicitation refuse.
func forecast(t *testing.T, c *mcp.Client) {
	if _, err := c.Tools(t.Context()); err != nil {
		t.Error(err)
	}
	ctx := mcp.OnProgress(t.Context(), func(spec.ProgressNotificationParams) {})
	got, err := mcp.CallTool[string](ctx, c, "forecast", nil)
	if !silent[c.Server().Revision] && (err != nil || got != "Rain in Berlin") {
		t.Errorf("%q, %v", got, err)
	}
}

// The files of testdata are of other runs: all that is random has a placeholder.
func TestGolden(t *testing.T) {
	Golden(t, newWeather("Tell the weather"), "testdata/weather", asked(), forecast)
	for _, rev := range era.Revisions() {
		text, err := os.ReadFile(filepath.Join("testdata/weather", rev.Name+".txt"))
		if err != nil {
			t.Fatal(err)
		}
		if asks := strings.Contains(string(text), "Which city?"); asks == silent[rev.Name] {
			t.Errorf("%s: the question is in the file: %v", rev.Name, asks)
		}
	}
}

// What differs, and a file that does not exist, fail with the place and the remedy.
func TestCompareFails(t *testing.T) {
	t.Setenv(updateEnv, "")
	file := filepath.Join(t.TempDir(), "dir", "a.txt")
	fails := func(got string, wants ...string) {
		t.Helper()
		f := &fakeTB{TB: t}
		compare(f, file, got)
		if len(f.failures) != min(1, len(wants)) {
			t.Fatalf("failures: %q", f.failures)
		}
		for _, want := range append(wants, file, "MCPTEST_UPDATE=1") {
			if len(wants) > 0 && !strings.Contains(f.failures[0], want) {
				t.Errorf("no %q in %s", want, f.failures[0])
			}
		}
	}
	long := strings.Repeat("x", 1000)
	fails("> 1\n", "does not exist")
	t.Setenv(updateEnv, "1")
	fails("> 1\n< " + long + "Tell the weather\n")
	t.Setenv(updateEnv, "")
	fails("> 1\n< " + long + "Tell the weather\n")
	fails("> 1\n< "+long+"Predict the weather\n", file+":2:", "Tell the weather",
		"Predict the weather")
	fails("> 1\n", file+":2:", "got  no frame")
}

// Equal values have one placeholder, other members keep their bytes.
func TestPlaceholders(t *testing.T) {
	p := placeholders{}
	for _, test := range [][2]string{
		{`{"nextCursor": "a\"b", "id":1.50}`, `{"nextCursor": "<cursor 1>", "id":1.50}`},
		{`{"cursor":"c","x":["cursor","d"]}`, `{"cursor":"<cursor 2>","x":["cursor","d"]}`},
		{
			`{"cursor":"a\"b","at":"on 2026-07-28T01:02:03.4Z."}`,
			`{"cursor":"<cursor 1>","at":"on <time>."}`,
		},
		{
			`{"progressToken":7,"protocolVersion":"2025-11-25"}`,
			`{"progressToken":"<progressToken 1>","protocolVersion":"2025-11-25"}`,
		},
		{"{\n\"a\":{}}", `{ "a":{}}`},
	} {
		if got := p.replace(test[0]); got != test[1] {
			t.Errorf("%s: got %s, want %s", test[0], got, test[1])
		}
	}
}
