package farcall_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// make check must fail for a known vulnerability, and must not pretend to have looked for one
// where it could not.
func TestVulnScript(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("there is no bash")
	}
	for _, test := range []struct {
		name, program string
		env           []string
		fails         bool
		want          string
	}{
		{
			name: "none known", program: "echo 'No vulnerabilities found.'",
			want: "vuln: .: no known vulnerabilities",
		},
		{
			name: "one known", program: "echo 'Vulnerability #1: GO-2026-0001'; exit 3", fails: true,
			want: "GO-2026-0001",
		},
		{
			name: "no database", program: "echo 'govulncheck: fetching vulnerabilities: Get " +
				"\"https://vuln.go.dev/index/modules.json.gz\": dial tcp: no such host'; exit 1",
			want: "vuln: NOT CHECKED for known vulnerabilities: the database https://vuln.go.dev cannot " +
				"be reached",
		},
		{
			name:    "another database that is not there",
			program: "echo 'govulncheck: Get \"https://db.example/index\": refused'; exit 1",
			env:     []string{"GOVULNDB=https://db.example"},
			want:    "the database https://db.example cannot be reached",
		},
		{
			name: "required", program: "echo 'govulncheck: fetching vulnerabilities: 403'; exit 1",
			env: []string{"VULN=required"}, fails: true, want: "NOT CHECKED",
		},
		{
			name: "does not compile", program: "echo 'govulncheck: loading packages: undefined: x'; exit 1",
			fails: true, want: "failed in . with exit code 1",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			program := filepath.Join(t.TempDir(), "govulncheck")
			if err := os.WriteFile(program, []byte("#!/bin/sh\n"+test.program+"\n"), 0o700); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), bash, "tools/vuln.sh", ".")
			cmd.Env = append(append(os.Environ(), "GOVULNCHECK="+program, "GOVULNDB=", "VULN="), test.env...)
			out, err := cmd.CombinedOutput()
			if (err != nil) != test.fails || !strings.Contains(string(out), test.want) {
				t.Errorf("%v\n%s\nwant %q", err, out, test.want)
			}
		})
	}
	out, err := exec.CommandContext(t.Context(), bash, "-c",
		"GOVULNCHECK=/nowhere/govulncheck tools/vuln.sh .").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "there is no program /nowhere/govulncheck") {
		t.Errorf("%v\n%s", err, out)
	}
}
