package interop

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestRelease builds the release of this platform, and installs it as users do: from the archive,
// and with npm.
func TestRelease(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tool, out := filepath.Join(dir, "release"), filepath.Join(dir, "out")
	inDir(t, "../tools", "go", "build", "-o", tool, "./release")
	platform := runtime.GOOS + "-" + runtime.GOARCH
	inDir(t, "..", tool, "-out", out, "-only", platform, "-version", "v1.2.3", "-sbom=false")

	inDir(t, out, "sha256sum", "--check", "SHA256SUMS")
	inDir(t, out, "tar", "xzf", "farcall-v1.2.3-"+platform+".tar.gz")
	unpacked := filepath.Join(out, "farcall-v1.2.3-"+platform)
	isVersion(t, inDir(t, unpacked, "./farcall", "version"))
	for _, name := range []string{
		"man/man1/farcall-mcp-call.1", "completions/farcall.bash", "LICENSE",
		"farcall.service",
	} {
		if info, err := os.Stat(filepath.Join(unpacked, name)); err != nil || info.Size() < 500 {
			t.Errorf("the archive lacks %s: %v", name, err)
		}
	}
	inDir(t, unpacked, "bash", "-n", "completions/farcall.bash")

	system := map[string]string{"amd64": "x64"}
	npm := filepath.Join(out, "npm", runtime.GOOS+"-"+cmp.Or(system[runtime.GOARCH], runtime.GOARCH))
	one := strings.TrimSpace(inDir(t, npm, "npm", "pack", "--silent"))
	main := strings.TrimSpace(
		inDir(t, filepath.Join(out, "npm", "farcall"), "npm", "pack", "--silent"))
	user := filepath.Join(dir, "user")
	if err := os.Mkdir(user, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(user, "package.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	inDir(t, user, "npm", "install", "--offline", "--no-audit", "--no-fund", filepath.Join(npm, one),
		filepath.Join(out, "npm", "farcall", main))
	isVersion(t, inDir(t, user, "npx", "--no-install", "farcall", "version"))
	// The wrapper passes standard input, standard output and the exit code on.
	sum := inDir(t, user, "npx", "--no-install", "farcall", "call", "math/add", "2", "3", "--", "npx",
		"--no-install", "farcall", "serve", "--stdio", "--log", "off")
	if strings.TrimSpace(sum) != "5" {
		t.Errorf("2 + 3 = %q", sum)
	}
	cmd := exec.CommandContext(t.Context(), "npx", "--no-install", "farcall", "nosuch")
	cmd.Dir = user
	if _ = cmd.Run(); cmd.ProcessState.ExitCode() != 2 {
		t.Errorf("exit code %d, want 2", cmd.ProcessState.ExitCode())
	}
}

// TestService lets systemd read the unit, where there is systemd.
func TestService(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("there is no systemd-analyze")
	}
	unit, err := os.ReadFile("../deploy/farcall.service")
	if err != nil {
		t.Fatal(err)
	}
	// systemd looks whether the programs exist.
	name := filepath.Join(t.TempDir(), "farcall.service")
	text := strings.ReplaceAll(string(unit), "/usr/local/bin/farcall", farcallPath)
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "systemd-analyze", "verify", name).CombinedOutput()
	if err != nil || strings.Contains(string(out), "farcall.service") {
		t.Errorf("systemd says: %v %s", err, out)
	}
}

func isVersion(t *testing.T, line string) {
	t.Helper()
	if !strings.HasPrefix(line, "farcall v1.2.3 (commit ") {
		t.Errorf("version: %q", line)
	}
}

// inDir runs a command, which has to succeed, and returns its standard output.
func inDir(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out, &errs)
	}
	return string(out)
}
