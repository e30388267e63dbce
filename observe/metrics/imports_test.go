package metrics_test

import (
	"debug/buildinfo"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/internal/race"
)

// Who imports farcall, or builds a server or a client with it, links neither Prometheus nor
// OpenTelemetry.
func TestImports(t *testing.T) {
	race.Skip(t, "it looks at files")
	t.Parallel()
	const module = "github.com/farcall-dev/farcall"
	heavy := func(path string) bool {
		return strings.Contains(path, "prometheus") || strings.Contains(path, "opentelemetry") ||
			strings.Contains(path, "protobuf")
	}
	libraries := []string{
		"", "/observe", "/mcp", "/mcp/mcphttp", "/mcp/host", "/httprpc", "/wsrpc",
		"/stream", "/rpc", "/guard", "/gateway",
	}
	for i := range libraries {
		libraries[i] = module + libraries[i]
	}
	list := exec.CommandContext(t.Context(), "go", append([]string{"list", "-deps"}, libraries...)...)
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	for path := range strings.FieldsSeq(string(out)) {
		if heavy(path) {
			t.Errorf("a library imports %s", path)
		}
	}
	file := filepath.Join(t.TempDir(), "hello")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", file,
		module+"/examples/mcp/hello").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if info.Main.Path != module {
		t.Fatalf("the program is of %s", info.Main.Path)
	}
	for _, m := range info.Deps {
		if heavy(m.Path) {
			t.Errorf("a server links %s", m.Path)
		}
	}
}
