package interop

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// tshark reads the pcapng of a capture without a plugin: each frame is JSON with its direction.
func TestCaptureInTshark(t *testing.T) {
	t.Parallel()
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		missing(t, "there is no tshark on this machine: Debian's package tshark has it")
	}
	file := filepath.Join(t.TempDir(), "a.jsonl")
	mustFarcall(t, "call", "math/add", "2", "3", "--", farcallPath, "tap", "--raw", "--out", file,
		"--", farcallPath, "serve", "--stdio", "--log", "off")
	packets := file + ".pcapng"
	mustFarcall(t, "export", file, "--format", "pcapng", "--out", packets)
	out, err := exec.CommandContext(t.Context(), tshark, "-r", packets, "-T", "fields",
		"-e", "_ws.col.Protocol", "-e", "exported_pdu.p2p_dir", "-e", "json.key", "-e",
		"json.value.string").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var up, down bool
	for line := range strings.Lines(string(out)) {
		up = up || strings.Contains(line, "\t0\t") && strings.Contains(line, "math/add")
		down = down || strings.Contains(line, "\t1\t") && strings.Contains(line, "result")
	}
	if !up || !down {
		t.Errorf("%s", out)
	}
	if out, err = exec.CommandContext(t.Context(), tshark, "-r", packets, "-T",
		"json").Output(); err != nil {
		t.Fatal(err)
	}
	if !json.Valid(out) || strings.Contains(string(out), "_ws.malformed") {
		t.Errorf("%s", out)
	}
}
