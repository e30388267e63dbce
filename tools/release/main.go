// Command release builds what a release of farcall consists of, into a directory:
//
//   - an archive for each platform, with the binary, the license, the README, man pages and shell
//     completions
//   - SHA256SUMS of all archives
//   - the bill of materials (CycloneDX) of each binary
//   - npm/: the package farcall and a package for each platform, ready for npm publish
//   - farcall.rb: the Homebrew formula
//
// Two runs for the same commit with the same Go give the same bytes: -trimpath, no cgo, the date of
// the commit as the date of all files. It runs in the root of the repository.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

var platforms = []platform{
	{"linux", "amd64"},
	{"linux", "arm64"},
	{"darwin", "amd64"},
	{"darwin", "arm64"},
	{"windows", "amd64"},
	{"windows", "arm64"},
}

type platform struct{ system, arch string }

func (p platform) String() string { return p.system + "-" + p.arch }

// binary is the name of the program's file.
func (p platform) binary() string {
	if p.system == "windows" {
		return "farcall.exe"
	}
	return "farcall"
}

// A release is what is built, and where.
type release struct {
	dir     string
	version string    // v1.2.3, or what git describe prints
	commit  string    // 12 digits
	date    time.Time // of the commit
	common  []file    // what is in all archives
	bills   bool      // with bills of materials
	sums    map[string]string
}

func main() {
	dir := flag.String("out", "out/release", "the `directory` to write; what it has is removed first")
	only := flag.String("only", "", "build only this `platform`, as linux-amd64")
	version := flag.String("version", "", "the `version`; what git describe prints, if it is left out")
	bills := flag.Bool("sbom", true, "write a bill of materials for each binary")
	flag.Parse()
	if err := run(*dir, *only, *version, *bills); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(dir, only, version string, bills bool) error {
	r, err := begin(dir, version)
	if err != nil {
		return err
	}
	r.bills = bills
	built := 0
	for _, p := range platforms {
		if only != "" && only != p.String() {
			continue
		}
		if err := r.build(p); err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		built++
	}
	if built == 0 {
		return fmt.Errorf("there is no platform %q; they are %v", only, platforms)
	}
	if err := r.writeSums(); err != nil {
		return err
	}
	if err := r.writeNPM(only); err != nil {
		return err
	}
	if only != "" {
		return nil // the formula needs the checksums of all platforms
	}
	return r.writeFormula()
}

// begin finds out what is released, and makes what all archives contain.
func begin(dir, version string) (*release, error) {
	commit, err := output("git", "rev-parse", "--short=12", "HEAD")
	if err != nil {
		return nil, err
	}
	when, err := output("git", "log", "-1", "--format=%cI")
	if err != nil {
		return nil, err
	}
	date, err := time.Parse(time.RFC3339, when)
	if err != nil {
		return nil, err
	}
	if version == "" {
		if version, err = output("git", "describe", "--tags", "--always", "--dirty"); err != nil {
			return nil, err
		}
	}
	if !strings.HasPrefix(version, "v") {
		version = "v0.0.0-" + version // without a tag; npm wants a version of this form
	}
	r := &release{
		dir: dir, version: version, commit: commit, date: date.UTC(),
		sums: map[string]string{},
	}
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
		return nil, fmt.Errorf("-out %s has sources, and would be removed: name another directory", dir)
	}
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	r.common, err = r.manual()
	return r, err
}

// manual returns the documents of the archives. The program itself writes the man pages and
// completions.
func (r *release) manual() ([]file, error) {
	scratch, err := os.MkdirTemp("", "farcall-release")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(scratch)
	program := filepath.Join(scratch, "farcall")
	if err := r.compile(program, os.Environ()); err != nil {
		return nil, err
	}
	if _, err := output(program, "man", filepath.Join(scratch, "man")); err != nil {
		return nil, err
	}
	var all []file
	for _, name := range []string{"README.md", "LICENSE", "CHANGELOG.md", "deploy/farcall.service"} {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		all = append(all, file{filepath.Base(name), text, 0o644})
	}
	pages, err := filepath.Glob(filepath.Join(scratch, "man", "*.1"))
	if err != nil || len(pages) == 0 {
		return nil, errors.Join(err, fmt.Errorf("%d man pages", len(pages)))
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			return nil, err
		}
		all = append(all, file{"man/man1/" + filepath.Base(page), text, 0o644})
	}
	for shell, name := range map[string]string{
		"bash": "farcall.bash", "zsh": "_farcall",
		"fish": "farcall.fish", "powershell": "farcall.ps1",
	} {
		text, err := exec.Command(program, "completion", shell).Output()
		if err != nil {
			return nil, fmt.Errorf("completion %s: %w", shell, err)
		}
		all = append(all, file{"completions/" + name, text, 0o644})
	}
	return sorted(all), nil
}

// compile builds the program with what it says about itself.
func (r *release) compile(name string, environment []string) error {
	set := fmt.Sprintf("-s -w -buildid= -X main.version=%s -X main.commit=%s -X main.date=%s",
		r.version, r.commit, r.date.Format(time.RFC3339))
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", set, "-o", name,
		"./cmd/farcall")
	cmd.Env = append(environment, "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	return cmd.Run()
}

// build makes the archive of one platform, the directory that npm publishes for it, and the bill of
// materials.
func (r *release) build(p platform) error {
	name := filepath.Join(r.dir, "bin", p.String(), p.binary())
	if err := r.compile(name, append(os.Environ(), "GOOS="+p.system, "GOARCH="+p.arch)); err != nil {
		return err
	}
	program, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	base := "farcall-" + r.version + "-" + p.String()
	files := append([]file{{p.binary(), program, 0o755}}, r.common...)
	archive := filepath.Join(r.dir, base+".tar.gz")
	pack := packTar
	if p.system == "windows" {
		archive, pack = filepath.Join(r.dir, base+".zip"), packZip
	}
	if err := pack(archive, base, files, r.date); err != nil {
		return err
	}
	if r.sums[filepath.Base(archive)], err = sum(archive); err != nil {
		return err
	}
	fmt.Printf("%s  %.1f MB\n", archive, float64(len(program))/1e6)
	if !r.bills {
		return nil
	}
	bill := filepath.Join(r.dir, base+".cdx.json")
	if _, err := output("go", "tool", "-modfile=tools/sbom/go.mod", "cyclonedx-gomod", "bin", "-json",
		"-noserial", "-notimestamp", "-version", r.version, "-output", bill, name); err != nil {
		return err
	}
	r.sums[filepath.Base(bill)], err = sum(bill)
	return err
}

// output runs a command and returns its standard output without the space around it.
func output(name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err,
			strings.TrimSpace(errs.String()))
	}
	return strings.TrimSpace(string(out)), nil
}
