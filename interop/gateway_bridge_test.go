package interop

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// bridgeEnds are the transports of both sides of "farcall bridge".
var bridgeEnds = []string{"stdio", "http", "sse", "ws", "tcp", "unix"}

// at returns the target of a transport, for the server that has an address and a
// socket.
func at(transport, address, socket string) string {
	switch transport {
	case "http":
		return "http://" + address + "/mcp"
	case "sse":
		return "http://" + address + "/sse"
	case "ws":
		return "ws://" + address + "/mcp"
	case "tcp":
		return "tcp://" + address
	}
	return "unix:" + socket
}

// short returns a path for a socket, which must not be long.
func short(t *testing.T, name string) string {
	t.Helper()
	return filepath.Join(t.TempDir(), name)
}

// Every FROM of a bridge with every TO, for clients of both eras.
func TestGatewayBridge(t *testing.T) {
	t.Parallel()
	socket := short(t, "server")
	server := starts(t, "serve", "--listen", "127.0.0.1:0", "--listen", "unix:"+socket)
	for _, to := range bridgeEnds {
		t.Run("to "+to, func(t *testing.T) {
			t.Parallel()
			target := []string{at(to, server.address, socket)}
			if to == "stdio" {
				target = []string{"--", farcallPath, "serve", "--stdio", "--log", "off"}
			}
			port := starts(t, slices.Concat([]string{"bridge", "127.0.0.1:0"}, target)...)
			inside := short(t, "bridge")
			starts(t, slices.Concat([]string{"bridge", "unix:" + inside}, target)...)
			for _, from := range bridgeEnds {
				place := []string{at(from, port.address, inside)}
				if from == "stdio" {
					place = slices.Concat([]string{"--", farcallPath, "bridge", "stdio", "--log", "off"}, target)
				}
				for _, era := range []string{"modern", "legacy"} {
					if from == "sse" && era == "modern" {
						continue // it is not among its transports
					}
					for args, want := range map[string]string{
						"math_add a=2 b=3":                  "5",
						`demo_form --answer {"name":"Ada"}`: "Ada",
						"demo_progress steps=3 ms=1":        "Took 3 steps.",
						"demo_sampling --sample Paris":      "Paris",
						"demo_roots --root " + t.TempDir():  "file:///",
					} {
						t.Run(strings.Join([]string{from, era, args}, " "), func(t *testing.T) {
							all := []string{"mcp", "call"}
							if from != "stdio" {
								all = append(all, place...)
							}
							all = append(append(all, strings.Fields(args)...), "--era", era)
							if from == "stdio" {
								all = append(all, place...)
							}
							if got := mustFarcall(t, all...); !strings.Contains(got, want) {
								t.Errorf("%s\nwant %q", got, want)
							}
						})
					}
				}
			}
		})
	}
}

// Foreign clients use foreign servers through a bridge, over what the gateway of
// many servers has not: HTTP+SSE, and standard input and output.
func TestGatewayBridgeForeign(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"go-sdk", "mcp-go"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := child(t, name)
			words := []string{"--env", childVariable + "=" + name, "--log", "off", "--", run.Path}
			f := starts(t, slices.Concat([]string{"bridge", "127.0.0.1:0"}, words)...)
			p := f.place("")
			p.stdio = func() *exec.Cmd {
				cmd := exec.Command(farcallPath, slices.Concat([]string{"bridge", "stdio"}, words)...)
				marked(t, cmd)
				return cmd
			}
			// with one of its subscriptions it ends all others
			missing := map[string][]string{"go-sdk": {"change"}}[name]
			for maker, m := range makers {
				for _, where := range []string{
					"stdio 2026-07-28", "stdio 2025-11-25", "stdio 2024-11-05",
					"sse 2025-11-25", "sse 2024-11-05", "http 2025-06-18",
				} {
					way, revision, _ := strings.Cut(where, " ")
					if maker == "farcall" && where == "sse 2025-11-25" {
						continue // it finds the other transport first
					}
					t.Run(maker+" "+where, func(t *testing.T) {
						u := m.use(t, p, way, revision)
						if got := u.revision(); got != revision {
							t.Errorf("the revision is %s", got)
						}
						lacking := slices.Concat(missingIn(revision), missing)
						switch {
						case maker == "go-sdk" && revision == "2026-07-28" && name == "mcp-go":
							lacking = append(lacking, "places") // it cannot read a roots/list without params
						case maker == "mcp-go" && way == "sse":
							lacking = append(lacking, "cancel", "ask", "visit", "think", "places") // it does not answer
						case maker == "mcp-go" && way == "http":
							lacking = append(lacking, "cancel") // it does not tell the server
						}
						exercise(t, u, lacking...)
					})
				}
			}
			for era, way := range map[string]string{"modern": "http", "legacy": "sse"} {
				t.Run("typescript "+era, func(t *testing.T) {
					typeScript(t, era, way, map[string]string{"http": p.http, "sse": p.sse}[way])
				})
			}
			t.Run("typescript stdio", func(t *testing.T) {
				typeScript(t, append([]string{"auto", "stdio"}, p.stdio().Args...)...)
			})
		})
	}
}
