package interop

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// crowdPrograms uses the servers with programs: the Inspector, "farcall mcp", and
// a script for the client of the TypeScript SDK.
func crowdPrograms(t *testing.T, c *crowd) {
	for _, era := range []string{"legacy", "auto", "modern"} {
		inspector := []string{
			"--server-url", c.place("").http, "--transport", "http", "--protocol-era",
			era, "--method",
		}
		for args, want := range map[string]string{
			"tools/list": "events__trigger-long-running-operation",
			"tools/call --tool-name local__echo --tool-arg " +
				"message=hello": "Echo: hello",
			"tools/call --tool-name gosdk-web__add --tool-arg A=2 B=3": "5",
			"tools/call --tool-name files__read_text_file --tool-arg path=" + c.files +
				"/hello.txt": "Hello from a file",
			"resources/read --uri " +
				"mcpgo+note://numbered/7": "Note 7.",
			"resources/templates/list": "demo://resource/dynamic/text/{resourceId}",
			"prompts/get --prompt-name web__args-prompt " +
				"--prompt-args city=Paris": "What's weather in Paris?",
			"tools/call --tool-name events__get-structured-content --tool-arg " +
				"location=Chicago": "Light rain",
		} {
			t.Run("inspector "+era+"/"+args, func(t *testing.T) {
				t.Parallel()
				out, err := inspect(t, append(slices.Clip(inspector), strings.Fields(args)...)...)
				if err != nil || !bytes.Contains(out, []byte(want)) {
					t.Errorf("%v\n%s\nwant %q", err, out, want)
				}
			})
		}
		for name, server := range map[string]string{
			"legacy": "gosdk-stateless", "auto": "mcpgo-web",
			"modern": "gosdk-web",
		} {
			if name == era {
				t.Run("typescript "+era, func(t *testing.T) {
					t.Parallel()
					typeScript(t, era, "http", c.place(server).http)
				})
			}
		}
		for args, want := range map[string]string{
			"discover":                  "farcall",
			"tools":                     "web__get-tiny-image",
			"call @ mcpgo__add A=2 B=3": "5",
			`call @ gosdk__ask --answer {"name":"Ada"}`:                       "Hello, Ada!",
			`call @ web__trigger-elicitation-request --answer {"name":"Ada"}`: "Ada",
			"call @ events__trigger-sampling-request prompt=x --sample Paris": "Paris",
			"call @ local__get-roots-list --root " + c.files:                  c.files,
			"read @ gosdk-web+note://numbered/7":                              "Note 7.",
			"prompt @ mcpgo-web__greet name=Bob":                              "Please greet Bob.",
			"complete @ prompt gosdk__greet name=B":                           "Bob",
		} {
			t.Run("farcall "+era+"/"+args, func(t *testing.T) {
				t.Parallel()
				verb, rest, _ := strings.Cut(args, " ")
				all := append([]string{"mcp", verb, c.place("").http, "--era", era},
					strings.Fields(strings.TrimPrefix(rest, "@ "))...)
				if got := mustFarcall(t, all...); !strings.Contains(got, want) {
					t.Errorf("%s\nwant %q", got, want)
				}
			})
		}
	}
}

// typeScript does what mcp-client.mjs does, and checks what comes of it.
func typeScript(t *testing.T, args ...string) {
	t.Helper()
	var got struct {
		Revision                        string
		Tools, Resources, Prompts       []string
		Add                             sum
		Fail, Ask, Visit, Think, Places string
		Read, Prompt, Wait, Cancelled   string
		Complete                        []string
		Progress                        []float64
	}
	if err := json.Unmarshal(node(t, nil, append([]string{"mcp-client.mjs"}, args...)...),
		&got); err != nil {
		t.Fatal(err)
	}
	want := "2026-07-28"
	if args[0] == "legacy" {
		want = "2025-11-25"
	}
	if got.Revision != want {
		t.Errorf("the revision is %s; want %s", got.Revision, want)
	}
	if len(got.Resources) != 2 || len(got.Prompts) != 1 {
		t.Errorf("lists: %q, %q, %q", got.Tools, got.Resources, got.Prompts)
	}
	for _, one := range [][2]string{
		{got.Fail, "it went wrong"},
		{got.Ask, "Hello, Ada!"},
		{got.Visit, "Visited."},
		{got.Think, "Paris"},
		{got.Places, root},
		{got.Read, "Note 7."},
		{got.Prompt, "Please greet Bob."},
		{got.Wait, "cancelled"},
		{got.Cancelled, "1"},
	} {
		if !strings.Contains(one[0], one[1]) {
			t.Errorf("%q; want %q", one[0], one[1])
		}
	}
	if got.Add.Sum != 5 || !slices.Equal(got.Complete, []string{"Bea", "Bob"}) {
		t.Errorf("add = %d, complete = %q", got.Add.Sum, got.Complete)
	}
	if !slices.IsSorted(got.Progress) { // of reports that come with the answer it loses some, or all
		t.Errorf("progress %v", got.Progress)
	}
}
