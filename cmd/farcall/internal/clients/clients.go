// Package clients answers one question: where do the programs that use MCP servers write them down,
// and in which form?
package clients

import (
	"os"
	"path/filepath"
	"runtime"
)

// A Client is a program that uses MCP servers.
type Client struct {
	// Name is what the command line calls it, Title what people do.
	Name, Title string
	// key is under which the servers are in its file.
	key string
	// file returns the path of its file for a user with a home and a directory of configurations.
	file func(home, config string) string
	// url makes an entry for a server at a URL. Nil: it starts commands only.
	url func(url string) Entry
	// command makes an entry for a command; nil: commandEntry.
	command func(words []string) Entry
}

// An Entry is what is written of a server: strings, lists of them, and booleans.
type Entry []Field

// A Field is a member of an Entry.
type Field struct {
	Key   string
	Value any
}

func commandEntry(words []string) Entry {
	return Entry{{"command", words[0]}, {"args", words[1:]}}
}

// urlEntry makes entries that have a URL alone.
func urlEntry(key string) func(string) Entry {
	return func(url string) Entry { return Entry{{key, url}} }
}

// typedEntry makes entries with the type http.
func typedEntry(url string) Entry { return Entry{{"type", "http"}, {"url", url}} }

// all are the clients, in the order of their names.
var all = []*Client{
	{
		Name: "claude", Title: "Claude Desktop", key: "mcpServers",
		file: func(_, config string) string { return filepath.Join(config, "Claude", "claude_desktop_config.json") },
	}, {
		Name: "claude-code", Title: "Claude Code in this directory", key: "mcpServers",
		file: func(string, string) string { return ".mcp.json" },
		url:  typedEntry,
	}, {
		Name: "codex", Title: "Codex", key: "mcp_servers",
		file: func(home, _ string) string {
			if dir := os.Getenv("CODEX_HOME"); dir != "" {
				return filepath.Join(dir, "config.toml")
			}
			return filepath.Join(home, ".codex", "config.toml")
		},
		url: urlEntry("url"),
	}, {
		Name: "cursor", Title: "Cursor", key: "mcpServers",
		file: func(home, _ string) string { return filepath.Join(home, ".cursor", "mcp.json") },
		url:  urlEntry("url"),
	}, {
		Name: "gemini", Title: "Gemini CLI", key: "mcpServers",
		file: func(home, _ string) string { return filepath.Join(home, ".gemini", "settings.json") },
		url:  urlEntry("httpUrl"),
	}, {
		Name: "opencode", Title: "opencode", key: "mcp",
		file: func(home, _ string) string { return filepath.Join(home, ".config", "opencode", "opencode.json") },
		url:  func(url string) Entry { return Entry{{"type", "remote"}, {"url", url}, {"enabled", true}} },
		command: func(words []string) Entry {
			return Entry{{"type", "local"}, {"command", words}, {"enabled", true}}
		},
	}, {
		Name: "vscode", Title: "VS Code", key: "servers",
		file: func(_, config string) string { return filepath.Join(config, "Code", "User", "mcp.json") },
		url:  typedEntry,
	}, {
		Name: "windsurf", Title: "Windsurf", key: "mcpServers",
		file: func(home, _ string) string { return filepath.Join(home, ".codeium", "windsurf", "mcp_config.json") },
		url:  urlEntry("serverUrl"),
	}, {
		Name: "zed", Title: "Zed", key: "context_servers",
		file: func(home, config string) string {
			if runtime.GOOS == "windows" {
				return filepath.Join(config, "Zed", "settings.json")
			}
			return filepath.Join(home, ".config", "zed", "settings.json")
		},
		url: urlEntry("url"),
	},
}

// All returns the clients, in the order of their names.
func All() []*Client { return all }

// Find returns the client of a name, or nil.
func Find(name string) *Client {
	for _, c := range all {
		if c.Name == name {
			return c
		}
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
	return c.file(home, config), nil
}

// TakesURL reports whether the client reaches servers at a URL without a bridge.
func (c *Client) TakesURL() bool { return c.url != nil }

// URLEntry makes an entry for a server at a URL, when the client takes one.
func (c *Client) URLEntry(url string) Entry { return c.url(url) }

// CommandEntry makes an entry for a command and its arguments.
func (c *Client) CommandEntry(words []string) Entry {
	if c.command != nil {
		return c.command(words)
	}
	return commandEntry(words)
}
