package interop

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	gosdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/farcall-dev/farcall/mcp"
)

// crowd is a gateway with servers of many makes behind it.
type crowd struct {
	*far
	files string // the directory of server-filesystem
}

func serveCrowd(t *testing.T) *crowd {
	t.Helper()
	c := &crowd{files: t.TempDir()}
	if err := os.WriteFile(filepath.Join(c.files, "hello.txt"), []byte("Hello from a file"),
		0o600); err != nil {
		t.Fatal(err)
	}
	at := func(name, url string) upstream { return upstream{name, map[string]any{"url": url}} }
	memory := npm(t, "server-memory")
	memory.Env = append(memory.Env, "MEMORY_FILE_PATH="+filepath.Join(t.TempDir(), "memory.jsonl"))
	goSDK, mcpGo := serveGoSDK(t, nil), serveMCPGo(t)
	stateless := serveGoSDK(t,
		&gosdk.StreamableHTTPOptions{Stateless: true, PropagateRequestCancellation: true})
	c.far = gatewayOf(t, "",
		runs("local", everything(t, "stdio").stdio()),
		at("web", everything(t, "http").http),
		upstream{"events", map[string]any{"url": everything(t, "sse").sse, "transport": "sse"}},
		runs("files", npm(t, "server-filesystem", c.files)),
		runs("memory", memory),
		runs("gosdk", goSDK.stdio()),
		at("gosdk-web", goSDK.http),
		at("gosdk-stateless", stateless.http),
		runs("mcpgo", mcpGo.stdio()),
		at("mcpgo-web", mcpGo.http),
	)
	return c
}

func TestGateway(t *testing.T) {
	t.Parallel()
	c := serveCrowd(t)
	t.Run("together", func(t *testing.T) { crowdTogether(t, c) })
	t.Run("one by one", func(t *testing.T) {
		crowdEverything(t, c)
		crowdClients(t, c)
	})
	t.Run("programs", func(t *testing.T) { crowdPrograms(t, c) })
}

// All servers are at one address; their names say which server they are of.
func crowdTogether(t *testing.T, c *crowd) {
	for _, era := range []string{
		"2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26",
		"2024-11-05",
	} {
		u := useAs(t, c.place(""), "http", era)
		tools, resources, templates, prompts, err := u.lists(within(t))
		if err != nil {
			t.Fatal(err)
		}
		for what, lists := range map[string][2][]string{
			"tools": {tools, {
				"local__echo", "web__echo", "events__echo", "files__read_text_file", "memory__create_entities",
				"gosdk__add", "gosdk-web__add", "mcpgo__add", "mcpgo-web__add", "mcpgo__work",
			}},
			"resources": {resources, {"gosdk+note://text", "gosdk-web+note://text", "mcpgo+note://text"}},
			"templates": {templates, {"gosdk+note://numbered/{n}", "mcpgo+note://numbered/{n}"}},
			"prompts": {
				prompts, {"local__args-prompt", "web__args-prompt", "gosdk__greet", "mcpgo__greet"},
			},
		} {
			for _, name := range lists[1] {
				if !slices.Contains(lists[0], name) {
					t.Errorf("%s: the %s are %q; want %q", era, what, lists[0], name)
				}
			}
			if once := slices.Compact(slices.Sorted(slices.Values(lists[0]))); len(once) != len(lists[0]) {
				t.Errorf("%s: of the %s some are there twice: %q", era, what, lists[0])
			}
		}
		if slices.ContainsFunc(tools, func(name string) bool { return !strings.Contains(name, "__") }) {
			t.Errorf("%s: the tools are %q", era, tools)
		}
		path := map[string]string{"path": filepath.Join(c.files, "hello.txt")}
		says(t, u.client, "Hello from a file", "files__read_text_file", path)
		says(t, u.client, "Ada", "memory__create_entities", map[string]any{"entities": []map[string]any{
			{"name": "Ada " + era, "entityType": "person", "observations": []string{"asks"}},
		}})
		says(t, u.client, "Ada "+era, "memory__read_graph", nil)
		for _, name := range []string{"local", "web", "events"} {
			says(t, u.client, "Echo: "+name, name+"__echo", map[string]string{"message": name})
			if got, err := u.prompt(within(t), name+"__args-prompt",
				map[string]string{"city": name}); err != nil || got != "What's weather in "+name+"?" {
				t.Errorf("%s: args-prompt = %q, %v", era, got, err)
			}
		}
		for _, name := range []string{"gosdk", "gosdk-web", "gosdk-stateless", "mcpgo", "mcpgo-web"} {
			t.Run(era+" "+name, func(t *testing.T) {
				exercise(t, among(u, name), append(missingIn(era), "progress", "events")...)
			})
		}
	}
}

// among is a user of one server among others that have the same names.
func among(u *our, name string) user {
	return &oneOf{our: u, prefix: name + "__", uriPrefix: name + "+"}
}

type oneOf struct {
	*our
	prefix, uriPrefix string
}

func (u *oneOf) lists(
	ctx context.Context,
) (tools, resources, templates, prompts []string, err error) {
	tools, resources, templates, prompts, err = u.our.lists(ctx)
	cut := func(names []string, prefix string) (own []string) {
		for _, name := range names {
			if name, ok := strings.CutPrefix(name, prefix); ok {
				own = append(own, name)
			}
		}
		return own
	}
	return cut(tools, u.prefix), cut(resources, u.uriPrefix), cut(templates, u.uriPrefix),
		cut(prompts, u.prefix), err
}

func (u *oneOf) call(ctx context.Context, tool string, args any) (string, error) {
	return u.our.call(ctx, u.prefix+tool, args)
}

func (u *oneOf) read(ctx context.Context, uri string) (string, error) {
	return u.our.read(ctx, u.uriPrefix+uri)
}

func (u *oneOf) prompt(ctx context.Context, name string, args map[string]string) (string, error) {
	return u.our.prompt(ctx, u.prefix+name, args)
}

func (u *oneOf) complete(ctx context.Context, prompt, argument, value string) ([]string, error) {
	return u.our.complete(ctx, u.prefix+prompt, argument, value)
}

// What server-everything does it does behind the gateway, whatever its transport
// and the revision of the client.
func crowdEverything(t *testing.T, c *crowd) {
	for _, name := range []string{"local", "web", "events"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, era := range []string{"modern", "legacy"} {
				// one after the other: some tools are switches
				t.Run(era, func(t *testing.T) {
					u := useAs(t, c.place(name), "http", era)
					t.Run("tools", func(t *testing.T) { everythingTools(t, u) })
					t.Run("asks", func(t *testing.T) { everythingAsks(t, u) })
					t.Run("data", func(t *testing.T) { everythingData(t, u) })
					t.Run("prompts", func(t *testing.T) { everythingPrompts(t, u) })
					t.Run("progress", func(t *testing.T) { everythingProgress(t, u) })
					t.Run("events", func(t *testing.T) { everythingEvents(t, u) })
					t.Run("task", func(t *testing.T) { everythingTask(t, u) })
				})
			}
		})
	}
}

// makers are those of the clients, with what each lacks in a revision over HTTP.
var makers = map[string]struct {
	use     func(t *testing.T, p *place, way, revision string) user
	lacking func(revision string) []string
}{
	"farcall": {
		func(t *testing.T, p *place, way, revision string) user {
			return useAs(t, p, way, revision)
		}, missingIn,
	},
	"go-sdk": {
		func(t *testing.T, p *place, way, revision string) user {
			return useGoSDK(t, p, way, revision)
		}, missingIn,
	},
	"mcp-go": {
		func(t *testing.T, p *place, way, revision string) user { return useMCPGo(t, p, way, revision) },
		func(revision string) []string {
			if revision < "2026-07-28" {
				return append(missingIn(revision), "cancel") // it does not tell the server
			}
			return nil
		},
	},
}

// Clients of all makes use servers of all makes, each in its revision.
func crowdClients(t *testing.T, c *crowd) {
	servers := map[string][]string{ // what is lacking
		"gosdk":           {"change"}, // with one of its subscriptions it ends all others
		"gosdk-web":       nil,
		"gosdk-stateless": nil,
		"mcpgo":           nil,
		"mcpgo-web":       {"touch"}, // which it leaves to its users
	}
	for name, missing := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for maker, m := range makers {
				for _, revision := range []string{
					"2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26",
					"2024-11-05",
				} {
					t.Run(maker+" "+revision, func(t *testing.T) {
						u := m.use(t, c.place(name), "http", revision)
						if got := u.revision(); got != revision {
							t.Errorf("the revision is %s", got)
						}
						lacking := slices.Concat(m.lacking(revision), missing)
						if maker+revision == "go-sdk2026-07-28" && strings.HasPrefix(name, "mcpgo") {
							lacking = append(lacking, "places") // it cannot read a roots/list without params
						}
						exercise(t, u, lacking...)
						if strings.HasPrefix(name, "mcpgo") && revision == "2025-11-25" {
							switch u := u.(type) { // which have the tasks of that time
							case *our:
								checkTask(t, u.client)
							case *mcpGo:
								checkMCPGoTask(t, u.client)
							}
						}
					})
				}
			}
		})
	}
}

// A server that works where its client's roots are does so for each of several
// clients at once, and for none where those of another one are.
func TestGatewayRoots(t *testing.T) {
	t.Parallel()
	for lifetime, era := range map[string]string{
		"auto": "legacy", "session": "legacy", // each session has its own process
		// requests that stand alone share processes otherwise, and the roots of the last one
		"call": "modern",
	} {
		files := runs("files", npm(t, "server-filesystem"))
		files.at["lifetime"] = lifetime
		f := gatewayOf(t, "", files)
		t.Run(lifetime+" "+era, func(t *testing.T) {
			var clients []*mcp.Client
			var dirs []string
			for range 3 {
				dir := t.TempDir()
				o := ada(era)
				o.Roots = func(context.Context) ([]mcp.Root, error) {
					return []mcp.Root{{URI: "file://" + dir}}, nil
				}
				o.OnWarning = func(err error) { t.Logf("warning: %v", err) }
				clients, dirs = append(clients, dial(t, f.place("").http, o)), append(dirs, dir)
			}
			for range 3 {
				for i, c := range clients {
					seesOnly(t, c, dirs, i)
				}
			}
		})
	}
}

// seesOnly waits until the server works in one directory, as server-filesystem
// does a moment after it has got the roots, and fails when it is in another one.
func seesOnly(t *testing.T, c *mcp.Client, dirs []string, own int) {
	t.Helper()
	for late := time.After(waitLimit / 3); ; {
		r, err := c.CallTool(within(t), "files__list_allowed_directories", nil)
		if err != nil {
			t.Fatal(err)
		}
		got := string(r.AppendJSON(nil))
		for i, dir := range dirs {
			if i != own && strings.Contains(got, dir) {
				t.Errorf("the client with the root %q sees %s", dirs[own], got)
			}
		}
		if strings.Contains(got, dirs[own]) {
			return
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-late:
			t.Fatalf("the server does not know the root: %s", got)
		}
	}
}
