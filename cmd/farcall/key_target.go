package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/internal/jsonv2"
)

// A keyTarget is where a new key goes, and the line for the configuration.
type keyTarget struct {
	out    string // file for the key; "": standard output
	guard  string // configuration for the line; "": standard error
	asJSON bool
}

func (k *keyTarget) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&k.out, "out", "", "write the secret to a new `file` that only its owner can read (0600)")
	f.StringVar(&k.guard, "guard", "", "add the line to the guard of this configuration (a `file` in YAML; a new one if there is none)")
	f.BoolVar(&k.asJSON, "json", false, "print JSON; with --out without the secret")
}

// beside returns a path as the configuration has to name it: relative to its directory, where
// both are relative to the working directory.
func (k *keyTarget) beside(path string) string {
	if k.guard == "" || filepath.IsAbs(path) {
		return path
	}
	from, to := filepath.Dir(k.guard), path
	if filepath.IsAbs(from) {
		if full, err := filepath.Abs(path); err == nil {
			to = full
		}
	}
	if rel, err := filepath.Rel(from, to); err == nil {
		return filepath.ToSlash(rel)
	}
	return path
}

// put hands a new key over: secret to the file or to standard output, and the line to the
// configuration or to standard error. When the configuration refuses the line, there is no
// key.
func (k *keyTarget) put(e *env, m *made, secret, list, advice string) (err error) {
	if k.out != "" {
		if err := writeSecret(k.out, secret); err != nil {
			return err
		}
		m.Key, m.Secret, m.Private = "", "", ""
		advice = "The secret is in " + k.out + ", which only its owner can read."
	}
	if k.guard != "" {
		if err := gateway.AmendGuard(k.guard, list, m.Config); err != nil {
			if k.out != "" {
				_ = os.Remove(k.out) // it was made above, and no configuration knows it
			}
			return usagef("No key was made.", "--guard: %w", err)
		}
	}
	if k.asJSON {
		raw, err := jsonv2.Append(nil, m)
		if err != nil {
			return err
		}
		return e.printJSON(raw)
	}
	if k.out == "" {
		if _, err := fmt.Fprintln(e.stdout, secret); err != nil {
			return errors.New("the key could not be written; make another")
		}
	}
	where := "for guard." + list
	if k.guard != "" {
		where = "added to guard." + list + " of " + k.guard
	}
	fmt.Fprintf(e.stderr, "%s\n%s:\n  - %s\n", advice, where, m.Config)
	return nil
}

// writeSecret writes a secret to a file that it makes.
func writeSecret(path, secret string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return usagef("Choose another name, or remove it first.", "--out: %s exists and is not overwritten", path)
	} else if err != nil {
		return unwritable(path, err)
	}
	_, err = fmt.Fprintln(f, secret)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		_ = os.Remove(path)
		return fmt.Errorf("--out: %w", err)
	}
	return nil
}

// unwritable is the exit for a file of --out that cannot be made.
func unwritable(path string, err error) error {
	reason, hint := err, pathHint(path, err)
	if inner, ok := errors.AsType[*fs.PathError](err); ok {
		reason = inner.Err
	}
	if dir := filepath.Dir(path); errors.Is(err, fs.ErrNotExist) {
		reason, hint = errors.New("there is no directory "+dir), "Make it first: mkdir -p "+shellQuote(dir)
	}
	return usagef(hint, "--out: cannot make %s: %w", path, reason)
}

// exposure returns a warning when other users can read a file with a secret, or "".
func exposure(path string) string {
	info, err := os.Stat(path)
	if err != nil || runtime.GOOS == "windows" || !info.Mode().IsRegular() || info.Mode().Perm()&0o077 == 0 {
		return ""
	}
	return fmt.Sprintf("warning: other users may read %s (mode %04o): chmod 600 %s", path, info.Mode().Perm(), shellQuote(path))
}
