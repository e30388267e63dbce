package interop

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// deploy is the folder with what Prometheus and Grafana read.
const deploy = "../deploy"

// The files of deploy/ are valid to Prometheus, and each alert fires when it should.
func TestAlerts(t *testing.T) {
	t.Parallel()
	promtool(t, nil, "check", "rules", filepath.Join(deploy, "alerts.yaml"))
	promtool(t, nil, "test", "rules", filepath.Join(deploy, "alerts_test.yaml"))
	rules, err := os.ReadFile(filepath.Join(deploy, "alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	tests, err := os.ReadFile(filepath.Join(deploy, "alerts_test.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(rules)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "- alert: "); ok &&
			!strings.Contains(string(tests), "alertname: "+name+"\n") {
			t.Errorf("the alert %s has no test", name)
		}
	}
}

// promtool runs Prometheus's program for checks.
func promtool(t *testing.T, stdin io.Reader, args ...string) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		missing(t, "there is no promtool on this machine: Debian's package prometheus has it")
	}
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Stdin = stdin
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool %q: %v\n%s", args, err, out)
	}
}

// dashboard is what the test reads of deploy/grafana.json.
type dashboard struct {
	Panels []struct {
		Title, Type string
		Targets     []struct{ Expr string }
	}
}

// A Prometheus that reads a gateway at work has data for each panel of the dashboard, and knows the
// rules.
func TestDashboard(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(deploy, "grafana.json"))
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	f := gatewayOf(t,
		"cluster: embedded\nguard:\n  anonymous: true\n  allow: \"*\"\n"+
			"  deny: {name: no echo, calls: [\"tools/call narrow/echo\"]}\n",
		runs("wide", exec.Command(farcallPath, "serve", "--stdio", "--log", "off")),
		upstream{
			"narrow",
			map[string]any{
				"command":       []string{farcallPath, "serve", "--stdio", "--log", "off"},
				"max_in_flight": 1, "max_queue": 100,
			},
		},
		upstream{
			"down",
			map[string]any{
				"command": []string{"sh", "-c", "exit 3"},
				"restart": map[string]string{"min": "100ms", "max": "500ms"}, "preload": true,
			},
		},
	)
	ctx, cancel := context.WithCancel(t.Context())
	var traffic sync.WaitGroup
	defer traffic.Wait()
	defer cancel()
	for range 3 {
		u := useAs(t, f.place(""), "http", "2025-11-25")
		traffic.Go(func() { work(ctx, u) })
	}
	traffic.Go(func() { malformed(ctx, f.address) })
	p := startPrometheus(t, f.address)
	left := map[string]string{} // panels without data, with what Prometheus says
	for deadline := time.Now().Add(waitLimit); ; {
		clear(left)
		for _, panel := range d.Panels {
			for _, target := range panel.Targets {
				if said := p.query(t, target.Expr); said != "" {
					left[panel.Title] = target.Expr + ": " + said
				}
			}
		}
		if len(left) == 0 || time.Now().After(deadline) {
			break
		}
		<-time.After(time.Second)
	}
	for title, said := range left {
		t.Errorf("the panel %q has no data: %s", title, said)
	}
	answer, err := http.Get("http://" + f.address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	promtool(t, answer.Body, "check", "metrics")
}

// work makes calls of all outcomes until the context ends.
func work(ctx context.Context, u *our) {
	for ctx.Err() == nil {
		u.call(ctx, "wide__math_add", map[string]int{"a": 1, "b": 2})
		u.call(ctx, "wide__fail", map[string]string{"how": "tool"})
		u.call(ctx, "wide__math_add", map[string]string{"a": "x"})
		u.call(ctx, "narrow__echo", nil)
		u.call(ctx, "narrow__sleep", map[string]int{"ms": 50})
		u.call(ctx, "down__nothing", nil)
	}
}

// malformed sends an answer to no call and what is no JSON until the context ends.
func malformed(ctx context.Context, address string) {
	for ctx.Err() == nil {
		if conn, err := net.Dial("tcp", address); err == nil {
			fmt.Fprintln(conn, `{"jsonrpc":"2.0","id":7,"result":1}`) // no call waits for it
			fmt.Fprintln(conn, "{no JSON")
			io.ReadFull(conn, make([]byte, 1))
			conn.Close()
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// prometheus is one that runs.
type prometheus struct{ address string }

// startPrometheus starts one that reads a gateway each second.
func startPrometheus(t *testing.T, target string) *prometheus {
	t.Helper()
	path, err := exec.LookPath("prometheus")
	if err != nil {
		missing(t, "there is no prometheus on this machine: Debian's package prometheus has it")
	}
	rules, err := filepath.Abs(filepath.Join(deploy, "alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "prometheus.yml")
	config := fmt.Sprintf(
		"global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [%q]\n"+
			"scrape_configs: [{job_name: farcall, static_configs: [{targets: [%q]}]}]\n", rules, target)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	cmd := exec.Command(path, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+address, "--log.level=warn")
	cmd.Dir = dir
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(os.Interrupt)
		cmd.Wait()
		if t.Failed() {
			t.Log("prometheus says:\n" + said.String())
		}
	})
	return &prometheus{address}
}

// query asks for the value of an expression of the dashboard. It returns "" if there is one, or
// what there is instead.
func (p *prometheus) query(t *testing.T, expr string) string {
	expr = strings.NewReplacer("$instance", ".*", "$__rate_interval", "10s").Replace(expr)
	answer, err := http.Get("http://" + p.address + "/api/v1/query?query=" + url.QueryEscape(expr))
	if err != nil {
		return err.Error() // it is not ready yet
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	var got struct {
		Status, Error string
		Data          struct{ Result []struct{ Value []any } }
	}
	if err := json.Unmarshal(text, &got); err != nil {
		return string(text)
	}
	if got.Status != "success" && answer.StatusCode == http.StatusBadRequest {
		t.Fatalf("%s: %s", expr, got.Error)
	}
	has := slices.ContainsFunc(got.Data.Result, func(r struct{ Value []any }) bool {
		return len(r.Value) == 2 && r.Value[1] != "NaN"
	})
	if !has {
		return string(text)
	}
	return ""
}
