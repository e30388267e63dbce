package wording

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// goOption is the name of an option of Go in a text.
var goOption = regexp.MustCompile(`\b(?:Dial|Client)?Options\.[A-Z]\w*`)

// literal is a string of Go, and joint what two parts of one have between them.
var (
	literal = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)
	joint   = regexp.MustCompile(`" ?\+\n\s*"`)
)

// notReached are options in texts that no connection of a gateway fails with: callbacks and
// features that it does not use.
var notReached = regexp.MustCompile(
	`^mcp: ClientOptions\.Era: ` +
		`|ClientOptions\.(?:Elicit|Resume|Tasks)|Options\.(?:Event|Keys|Advertise|Sessions)`)

// TestEveryText reads the errors of the packages that reach servers: none names an option of Go
// once it is worded.
func TestEveryText(t *testing.T) {
	t.Parallel()
	found := 0
	for _, pattern := range []string{
		"mcp/client*.go", "mcp/mcphttp/*.go", "httprpc/*.go",
		"wsrpc/*.go", "stream/*.go",
	} {
		files, err := filepath.Glob(filepath.Join("..", "..", "..", filepath.FromSlash(pattern)))
		if err != nil || len(files) == 0 {
			t.Fatal(pattern, err)
		}
		for _, file := range files {
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(joint.ReplaceAllString(string(source), "")) {
				if strings.HasSuffix(file, "_test.go") || strings.HasPrefix(strings.TrimSpace(line), "//") {
					continue
				}
				for _, quoted := range literal.FindAllString(line, -1) {
					text, err := strconv.Unquote(quoted)
					if err != nil || !goOption.MatchString(text) || notReached.MatchString(text) ||
						strings.Contains(line, "misuse(") {
						continue
					}
					found++
					if worded := Text(errors.New(text)); goOption.MatchString(worded) {
						t.Errorf("%s: %q is worded %q", file, text, worded)
					}
				}
			}
		}
	}
	if found < 10 {
		t.Errorf("%d texts name options: the test does not look where they are", found)
	}
}

func TestText(t *testing.T) {
	t.Parallel()
	secret := &url.Error{Op: "Post", URL: "https://h/mcp?key=s3cr3t", Err: errors.New("EOF")}
	for want, err := range map[string]error{
		"Post https://h: EOF": fmt.Errorf(
			`mcp: farcall: call "tools/call": mcphttp: cannot reach the server: %w`, secret),
		"EOF": errors.New(
			`farcall: not sent: "tools/call": httprpc: cannot reach the server: EOF`),
		"its certificate is not signed by an authority known here; if it is meant, name a file with " +
			"it: tls: {ca: FILE}: x": errors.New(
			"mcp: connect: mcphttp: cannot reach the server: its certificate is not signed by an " +
				"authority known here; if it is meant, set DialOptions.TLS.RootCAs: x"),
		`the server is not modern (HTTP status 404), and then: initialize: HTTP status 501`: errors.New(
			`mcp: connect: the server is not modern (farcall: call "server/discover": HTTP status 404), ` +
				`and then: initialize: farcall: call "initialize": HTTP status 501`),
		"no answer and no progress within 1s (timeout)": errors.New(
			"mcp: no answer and no progress within 1s (ClientOptions.Timeout)"),
	} {
		if got := Text(err); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
}
