package interop

import (
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// A browser shows the page of a gateway and operates it, without a complaint, and axe finds nothing in it.
func TestGatewayPage(t *testing.T) {
	t.Parallel()
	browser := findBrowser(t)
	f := gatewayOf(t, "title: Tools of interop\n",
		runs("local", npm(t, "server-everything", "stdio")),
		runs("files", npm(t, "server-filesystem", t.TempDir())),
		runs("down", exec.Command("sh", "-c", "echo 'it <b>cannot</b> start' >&2; exit 3")),
	)
	u := useAs(t, f.place(""), "http", "auto")
	names(t, u.client, "local__echo", "files__read_text_file")
	done, stopped := make(chan struct{}), make(chan struct{})
	go func() { // what is shown changes
		defer close(stopped)
		for {
			u.call(t.Context(), "local__echo", map[string]string{"message": "hello"})
			select {
			case <-done:
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	defer func() {
		close(done)
		<-stopped
	}()
	var got struct {
		Axe        []string
		Operated   []bool
		Complaints []string
		Seen       []struct {
			Width, Tools, Found, Wide int
			Live, Changes             bool
			Text                      string
		}
	}
	if err := json.Unmarshal(node(t, nil, "page.mjs", browser, "http://"+f.address+"/", t.TempDir()), &got); err != nil {
		t.Fatal(err)
	}
	for i, s := range got.Seen {
		scripted := i < 2
		if scripted && (!s.Live || !s.Changes || s.Tools < 20 || s.Found == 0 || s.Found > 3 || s.Wide > 0) {
			t.Errorf("at %d px: live %v, changes %v, %d tools, %d with echo, %d px too wide", s.Width, s.Live, s.Changes, s.Tools, s.Found, s.Wide)
		}
		for _, want := range []string{"local", "files", "down", "mcp-servers/everything"} {
			if !strings.Contains(s.Text, want) {
				t.Errorf("at %d px (script: %v) there is no %q:\n%s", s.Width, scripted, want, s.Text)
			}
		}
		if scripted && !strings.Contains(s.Text, "it <b>cannot</b> start") {
			t.Errorf("at %d px what a server has said on standard error is not there as it is", s.Width)
		}
	}
	if len(got.Operated) != 3 || slices.Contains(got.Operated, false) {
		t.Errorf("orders and panels: %v", got.Operated)
	}
	for _, found := range got.Axe {
		t.Errorf("axe finds %s", found)
	}
	if len(got.Seen) != 3 || len(got.Complaints) > 0 {
		t.Errorf("%d views; the browser says %q", len(got.Seen), got.Complaints)
	}
}
