package main

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/farcall-dev/farcall/gateway"
)

// secretBytes is the size of what is made at random: 256 bits.
const secretBytes = 32

func newKeyCmd(e *env) *cobra.Command {
	return newGroup("key", "Make API keys and signing keys for a guard",
		"There are new, hash and sign-new.", newKeyNewCmd(e), newKeyHashCmd(e), newKeySignCmd(e))
}

// keyID is what can stand in a key, in YAML and in a header as it is.
var keyID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.-]*$`)

func checkKeyID(id string) error {
	if len(id) > 64 || !keyID.MatchString(id) {
		return usagef("Use up to 64 letters, digits, - and ., as in --id ci-2.", "%q cannot be an id", id)
	}
	return nil
}

// noKeyArgs refuses an id that is not given with --id.
func noKeyArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return usagef(fmt.Sprintf("The id is a flag: %s --id %s", cmd.CommandPath(), shellQuote(args[0])),
		"%s takes no argument, and %q is one", cmd.CommandPath(), args[0])
}

// random returns 256 random bits.
func random() []byte {
	b := make([]byte, secretBytes)
	_, _ = rand.Read(b) // it never fails
	return b
}

func hashOf(key []byte) string {
	sum := sha256.Sum256(key)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// made is a key, and the form of --json.
type made struct {
	ID     string `json:"id"`
	Key    string `json:"key,omitempty"`
	Hash   string `json:"hash,omitempty"`
	Secret string `json:"secret,omitempty"`
	// Private and Public are a pair for Ed25519, in PEM and base64.
	Private string `json:"private,omitempty"`
	Public  string `json:"public,omitempty"`
	Config  string `json:"config"` // a line of YAML
}

// newAPIKey makes the key of a principal, without a line of YAML.
func newAPIKey(id string) made {
	m := made{ID: id, Key: "fk_" + id + "_" + base64.RawURLEncoding.EncodeToString(random())}
	m.Hash = hashOf([]byte(m.Key))
	return m
}

func newKeyNewCmd(e *env) *cobra.Command {
	var id, expires string
	var roles []string
	var to keyTarget
	cmd := command("new", "Make an API key, and the line with its hash for guard.keys",
		func(*cobra.Command, []string) error {
			if err := checkKeyID(id); err != nil {
				return err
			}
			if _, err := time.Parse(time.DateOnly, expires); expires != "" && err != nil {
				return usagef("Write it as --expires 2030-01-31.", "%q is not a date", expires)
			}
			m := newAPIKey(id)
			m.Config = fmt.Sprintf("{id: %s, hash: %q", yamlWord(id), m.Hash)
			if len(roles) > 0 {
				m.Config += ", roles: [" + yamlWords(roles) + "]"
			}
			if expires != "" {
				m.Config += ", expires: " + expires
			}
			m.Config += "}"
			return to.put(e, &m, m.Key, "keys", "This is the only time that the key is shown.")
		})
	cmd.Args = noKeyArgs
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&id, "id", "key", "the `name` of who will have it: the principal")
	f.StringArrayVar(&roles, "role", nil, "a `role` that it gives; can be repeated")
	f.StringVar(&expires, "expires", "", "the `day` from which on it is not valid, as 2030-01-31")
	to.flags(cmd)
	return cmd
}

func newKeyHashCmd(e *env) *cobra.Command {
	const short = "Print the hash of a key that is read from standard input"
	return noArgs("hash", short, func() error {
		const most = 4 << 10
		key, err := io.ReadAll(io.LimitReader(e.stdin, most+1))
		key = bytes.TrimSpace(key)
		switch {
		case err != nil:
			return usagef("", "cannot read the key: %w", err)
		case len(key) == 0:
			return usagef("For example: farcall key hash < ci.key", "there is no key on standard input")
		case len(key) > most || bytes.ContainsAny(key, " \t\r\n"):
			return usagef("A key is one word.", "what is on standard input is no key")
		}
		return e.say("%s", hashOf(key))
	})
}

func newKeySignCmd(e *env) *cobra.Command {
	var id string
	var pair bool
	var to keyTarget
	cmd := command("sign-new", "Make a key for signed requests, and the line for guard.signatures",
		func(*cobra.Command, []string) error {
			if err := checkKeyID(id); err != nil {
				return err
			}
			m, secret, err := newSigner(id, pair)
			if err != nil {
				return err
			}
			advice := "This is the only time that the private key is shown."
			switch {
			case pair:
			case to.out != "":
				m.Config = fmt.Sprintf("{id: %s, secret: %q}", yamlWord(id), "file:"+to.beside(to.out))
			default:
				advice = fmt.Sprintf(
					"This is the only time that the secret is shown. Put it into the variable %s, or into a "+
						"file: secret: file:PATH.", secretVariable(id))
			}
			return to.put(e, m, secret, "signatures", advice)
		})
	cmd.Aliases, cmd.Args = []string{"signature"}, noKeyArgs
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&id, "id", "signer", "the `name` of who will sign: the principal and the keyid")
	f.BoolVar(&pair, "ed25519", false, "make a pair of keys instead of a secret")
	to.flags(cmd)
	return cmd
}

// newSigner makes a secret or a pair. The text is what the signer keeps.
func newSigner(id string, pair bool) (m *made, private string, err error) {
	m = &made{ID: id}
	if !pair {
		m.Secret = base64.RawURLEncoding.EncodeToString(random())
		m.Config = fmt.Sprintf("{id: %s, secret: %q}", yamlWord(id), "${"+secretVariable(id)+"}")
		return m, m.Secret, nil
	}
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, "", err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, "", err
	}
	m.Private = string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	m.Public = base64.StdEncoding.EncodeToString(public)
	m.Config = fmt.Sprintf("{id: %s, public: %q}", yamlWord(id), m.Public)
	return m, strings.TrimSpace(m.Private), nil
}

func secretVariable(id string) string {
	name := strings.ToUpper(strings.NewReplacer("-", "_", ".", "_").Replace(id)) + "_SECRET"
	if name[0] <= '9' {
		name = "KEY_" + name
	}
	return name
}

// yamlPlain is what YAML takes for text without quotes.
var yamlPlain = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_./-]*$`)

func yamlWord(word string) string {
	switch strings.ToLower(word) {
	case "true", "false", "null", "yes", "no", "on", "off", "y", "n":
	default:
		if yamlPlain.MatchString(word) {
			return word
		}
	}
	return fmt.Sprintf("%q", word)
}

func yamlWords(words []string) string {
	return strings.Join(mapped(words, yamlWord), ", ")
}

// A keyTarget is where a new key goes, and the line for the configuration.
type keyTarget struct {
	out    string // file for the key; "": standard output
	guard  string // configuration for the line; "": standard error
	asJSON bool
}

func (k *keyTarget) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&k.out, "out", "",
		"write the secret to a new `file` that only its owner can read (0600)")
	f.StringVar(&k.guard, "guard", "",
		"add the line to the guard of this configuration (a `file` in YAML; a new one if there is none)")
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
// configuration or to standard error. When the configuration refuses the line, there is no key.
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
		return e.printValue(m)
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
		return usagef("Choose another name, or remove it first.",
			"--out: %s exists and is not overwritten", path)
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
	reason, hint := pathReason(err), pathHint(path, err)
	if dir := filepath.Dir(path); errors.Is(err, fs.ErrNotExist) {
		reason, hint = errors.New("there is no directory "+dir),
			"Make it first: mkdir -p "+shellQuote(dir)
	}
	return usagef(hint, "--out: cannot make %s: %w", path, reason)
}

// exposure returns a warning when other users can read a file with a secret, or "".
func exposure(path string) string {
	info, err := os.Stat(path)
	if err != nil || runtime.GOOS == "windows" || !info.Mode().IsRegular() ||
		info.Mode().Perm()&0o077 == 0 {
		return ""
	}
	return fmt.Sprintf("warning: other users may read %s (mode %04o): chmod 600 %s", path,
		info.Mode().Perm(), shellQuote(path))
}
