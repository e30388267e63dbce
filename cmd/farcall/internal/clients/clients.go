// Package clients answers one question: where do the programs that use MCP servers write them down,
// and in which form?
package clients

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"

	"github.com/farcall-dev/farcall/internal/jsonc"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/replace"
	"github.com/farcall-dev/farcall/internal/scan"
)

// A Client is a program that uses MCP servers.
type Client struct {
	// Name is what the command line calls it, Title what people do.
	Name, Title string
	// key is under which the servers are in its file.
	key string
	// file is the path of its file, in which $NAME is a directory that File knows.
	file string
	// url makes an entry for a server at a URL. Nil: it starts commands only.
	url func(url string) Entry
}

// An Entry is what is written of a server: strings, lists of them, and booleans.
type Entry []Field

// A Field is a member of an Entry.
type Field struct {
	Key   string
	Value any
}

// urlEntry makes entries that have a URL alone.
func urlEntry(key string) func(string) Entry {
	return func(url string) Entry { return Entry{{key, url}} }
}

// typedEntry makes entries with the type http.
func typedEntry(url string) Entry { return Entry{{"type", "http"}, {"url", url}} }

// opencode takes entries that say what type they have and that they are enabled.
const opencode = "opencode"

func opencodeEntry(url string) Entry {
	return Entry{{"type", "remote"}, {"url", url}, {"enabled", true}}
}

// all are the clients, in the order of their names.
var all = []*Client{
	{"claude", "Claude Desktop", "mcpServers", "$CONFIG/Claude/claude_desktop_config.json", nil},
	{"claude-code", "Claude Code in this directory", "mcpServers", ".mcp.json", typedEntry},
	{"codex", "Codex", "mcp_servers", "$CODEX_HOME/config.toml", urlEntry("url")},
	{"cursor", "Cursor", "mcpServers", "$HOME/.cursor/mcp.json", urlEntry("url")},
	{"gemini", "Gemini CLI", "mcpServers", "$HOME/.gemini/settings.json", urlEntry("httpUrl")},
	{opencode, "opencode", "mcp", "$HOME/.config/opencode/opencode.json", opencodeEntry},
	{"vscode", "VS Code", "servers", "$CONFIG/Code/User/mcp.json", typedEntry},
	{
		"windsurf", "Windsurf", "mcpServers", "$HOME/.codeium/windsurf/mcp_config.json",
		urlEntry("serverUrl"),
	},
	{"zed", "Zed", "context_servers", "$ZED/settings.json", urlEntry("url")},
}

// All returns the clients, in the order of their names.
func All() []*Client { return all }

// Find returns the client of a name, or nil.
func Find(name string) *Client {
	if i := slices.IndexFunc(all, func(c *Client) bool { return c.Name == name }); i >= 0 {
		return all[i]
	}
	return nil
}

// File returns where the client keeps its servers.
func (c *Client) File() (string, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return "", err
	}
	config, err := os.UserConfigDir()
	if err != nil {
		return "", err
	}
	dirs := map[string]string{
		"HOME": home, "CONFIG": config, "ZED": filepath.Join(home, ".config", "zed"),
		"CODEX_HOME": cmp.Or(os.Getenv("CODEX_HOME"), filepath.Join(home, ".codex")),
	}
	if runtime.GOOS == "windows" {
		dirs["ZED"] = filepath.Join(config, "Zed")
	}
	return filepath.Clean(os.Expand(c.file, func(name string) string { return dirs[name] })), nil
}

// TakesURL reports whether the client reaches servers at a URL without a bridge.
func (c *Client) TakesURL() bool { return c.url != nil }

// URLEntry makes an entry for a server at a URL, when the client takes one.
func (c *Client) URLEntry(url string) Entry { return c.url(url) }

// CommandEntry makes an entry for a command and its arguments.
func (c *Client) CommandEntry(words []string) Entry {
	if c.Name == opencode {
		return Entry{{"type", "local"}, {"command", words}, {"enabled", true}}
	}
	return Entry{{"command", words[0]}, {"args", words[1:]}}
}

// ErrExists is what Text fails with when there is a server of the name and it is not to be
// replaced.
var ErrExists = jsonc.ErrExists

// maxFile is more than settings have.
const maxFile = 16 << 20

// Text returns what the file of the client becomes with an entry of a name. All else in it stays as
// it is.
func (c *Client) Text(
	path string, old []byte, name string, entry Entry, replace bool,
) ([]byte, error) {
	if strings.EqualFold(filepath.Ext(path), ".toml") {
		return c.tomlText(old, name, entry, replace)
	}
	text := []byte("{")
	for i, f := range entry {
		value, err := jsonv2.Append(nil, f.Value)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			text = append(text, ',')
		}
		text = append(text, fmt.Sprintf("\n  %q: %s", f.Key, value)...)
	}
	return jsonc.Set(old, []string{c.key}, name, append(text, "\n}"...), replace)
}

// tomlText appends a table. What JSON is for strings, lists of them and booleans, TOML is as well.
func (c *Client) tomlText(old []byte, name string, entry Entry, replace bool) ([]byte, error) {
	list, err := c.servers(old)
	switch {
	case err != nil:
		return nil, err
	case list[name] != nil && replace:
		return nil, errors.New(
			"it is there already, and farcall replaces nothing in TOML: remove it first")
	case list[name] != nil:
		return nil, ErrExists
	}
	text := bytes.TrimRight(old, " \t\r\n")
	if len(text) > 0 {
		text = append(slices.Clip(text), "\n\n"...)
	}
	text = append(text, fmt.Sprintf("[%s.%s]\n", c.key, scan.AppendQuoted(nil, name))...)
	for _, f := range entry {
		value, err := jsonv2.Append(nil, f.Value)
		if err != nil {
			return nil, err
		}
		text = append(text, fmt.Sprintf("%s = %s\n", f.Key, value)...)
	}
	if list, err = c.servers(text); err != nil || list[name] == nil {
		return nil,
			fmt.Errorf(
				"the servers are written in a form to which none can be added: write them as tables, [%s.NAME]",
				c.key)
	}
	return text, nil
}

// servers returns those in a text of TOML.
func (c *Client) servers(text []byte) (map[string]any, error) {
	var all map[string]any
	if err := toml.Unmarshal(text, &all); err != nil {
		line := 0
		if at, ok := errors.AsType[*toml.DecodeError](err); ok {
			line, _ = at.Position()
		}
		return nil, fmt.Errorf("line %d is not TOML", line)
	}
	list, _ := all[c.key].(map[string]any)
	return list, nil
}

// Write puts a text in the place of a file in one step, with its mode, and keeps the old one beside
// it. It returns the path of that, "" when there was no file. It fails when the file is not what it
// was.
func Write(path string, old, text []byte, now time.Time) (backup string, err error) {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target // of dotfiles that are kept elsewhere
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return "", err
		}
		return "", replace.File(path, old, text, 0o600, nil)
	case err != nil:
		return "", err
	}
	mode := info.Mode().Perm()
	err = replace.File(path, old, text, mode, func() error {
		var err error
		if backup, err = keep(path+"."+now.Format("20060102-150405"), old, mode); err != nil {
			return fmt.Errorf("cannot keep the old file: %w", err)
		}
		return nil
	})
	return backup, err
}

// mostBackups bounds those of one second.
const mostBackups = 100

// keep writes a text into a new file and returns its path.
func keep(path string, text []byte, mode fs.FileMode) (string, error) {
	for n := range mostBackups {
		name := path + ".bak"
		if n > 0 {
			name = fmt.Sprintf("%s-%d.bak", path, n)
		}
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		_, err = f.Write(text)
		return name, errors.Join(err, f.Close())
	}
	return "", fmt.Errorf("there are %d of it: remove them", mostBackups)
}

// Read reads the file of a client. One that is not there is empty.
func Read(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular() || info.Size() > maxFile:
		return nil, fmt.Errorf("%s is not a file of at most %d MB", path, maxFile>>20)
	}
	return os.ReadFile(path)
}
