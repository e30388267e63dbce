package metrics

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/farcall-dev/farcall/observe"
)

// The names of OpenTelemetry are pinned: a dashboard breaks when one changes.
func TestConventions(t *testing.T) {
	t.Parallel()
	want := []string{
		"mcp.client.operation.duration", "mcp.client.session.duration", "mcp.server.operation.duration",
		"mcp.server.session.duration",
		"rpc.client.call.duration", "rpc.server.call.duration",
	}
	var got []string
	for _, row := range table {
		if row.otel == "" {
			if !strings.HasPrefix(row.name, "farcall_") {
				t.Errorf("%s is neither OpenTelemetry's nor ours", row.name)
			}
			continue
		}
		got = append(got, row.otel)
		for _, label := range row.labels {
			name := Convention(label)
			if own := "farcall." + label; name != own && strings.ReplaceAll(name, ".", "_") != label {
				t.Errorf("%s: the label %s is the attribute %q", row.otel, label, name)
			}
		}
		if got := Convention(row.name); got != row.otel {
			t.Errorf("%s is %q, not %q", row.name, got, row.otel)
		}
		if name := strings.ReplaceAll(row.otel, ".", "_") + "_seconds"; name != row.name {
			t.Errorf("%s is %s for Prometheus, not %s", row.otel, name, row.name)
		}
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// A program registers what the table has, and nothing else.
func TestTable(t *testing.T) {
	t.Parallel()
	rows := map[string]bool{}
	for _, row := range slices.Concat(table, readings) {
		if rows[row.name] {
			t.Errorf("%s is there twice", row.name)
		}
		rows[row.name] = true
		if (row.kind == histogram) != (len(row.buckets) > 0) {
			t.Errorf("%s is a %s with %d buckets", row.name, row.kind, len(row.buckets))
		}
	}
	descs := make(chan *prometheus.Desc, 1000)
	m := New(nil)
	m.frame(observe.Frame{}) // the first one of a direction registers its series
	m.registry.Describe(descs)
	m.registry.natives.Describe(descs)
	close(descs)
	got := map[string]bool{}
	for d := range descs {
		_, name, _ := strings.Cut(d.String(), `fqName: "`)
		name, _, _ = strings.Cut(name, `"`)
		if !strings.HasPrefix(name, "go_") && !strings.HasPrefix(name, "process_") {
			got[name] = true
		}
	}
	if !maps.Equal(got, rows) {
		t.Errorf("registered %q\nin the table %q", slices.Sorted(maps.Keys(got)),
			slices.Sorted(maps.Keys(rows)))
	}
}

// The documentation has each metric with its kind, labels and help, and no other.
func TestDocumented(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "observability.md"))
	if err != nil {
		t.Fatal(err)
	}
	all := slices.Concat(table, readings)
	for _, m := range all {
		var labels []string
		for _, l := range m.labels {
			labels = append(labels, "`"+l+"`")
		}
		row := fmt.Sprintf("| `%s` | %s | %s | %s |\n", m.name, m.kind,
			strings.Join(labels, ", "), m.help)
		if !strings.Contains(string(text), row) {
			t.Errorf("docs/observability.md lacks\n%s", row)
		}
	}
	if rows := strings.Count(string(text), "\n| `farcall_") +
		strings.Count(string(text), "\n| `mcp_") + strings.Count(string(text), "\n| `rpc_"); rows !=
		len(all) {
		t.Errorf("docs/observability.md has %d metrics, there are %d", rows, len(all))
	}
}
