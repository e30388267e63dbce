package interop

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// The servers of these tests, no matter who made them, have the same tools, prompts and
// resources, and the clients, no matter who made them, answer what they are asked in
// the same way: the user is Ada, the model says "Paris", the root is below.

const root = "file:///home/ada"

type (
	addends struct{ A, B int }
	sum     struct{ Sum int }
	counted struct {
		N     int
		Pause int `json:",omitzero"` // ms, after each report
	}
	waiting struct{ Key string } // tells the waits of one test from those of others
	form    struct {
		Name string `json:"name"`
	}
)

// place is where a server is.
type place struct {
	http, sse string
	stdio     func() *exec.Cmd
}

// user is a client, of any make, of such a server. Its calls return the text of
// the result, and a *toolFailure when that is what the result is.
type user interface {
	revision() string
	lists(ctx context.Context) (tools, resources, templates, prompts []string, err error)
	call(ctx context.Context, tool string, args any) (string, error)
	count(ctx context.Context, n int) (progress []float64, err error)
	logFrom(ctx context.Context, level string) error
	read(ctx context.Context, uri string) (string, error)
	prompt(ctx context.Context, name string, args map[string]string) (string, error)
	complete(ctx context.Context, prompt, argument, value string) ([]string, error)
	// from now on the changes of lists and of a resource are reported
	watch(ctx context.Context, uri string) error
	events() <-chan string // "log …", "changed tools", "updated URI"
}

type toolFailure struct{ text string }

func (e *toolFailure) Error() string { return e.text }

// exercise does everything with a server that one can, except for what is lacking
// on one of the sides: the name of a check, or of a tool that causes an event.
func exercise(t *testing.T, u user, lacking ...string) {
	for _, check := range []struct {
		name string
		run  func(*testing.T, user)
	}{
		{"lists", checkLists},
		{"results", checkResults},
		{"validation", checkValidation},
		{"ask", checkAnswer("ask", "Hello, Ada!")},
		{"visit", checkAnswer("visit", "Visited")},
		{"think", checkAnswer("think", "Paris")},
		{"places", checkAnswer("places", root)},
		{"progress", checkProgress},
		{"log", checkLog},
		{"read", checkRead},
		{"prompt", checkPrompt},
		{"complete", checkComplete},
		{"events", func(t *testing.T, u user) { checkEvents(t, u, lacking) }},
		{"cancel", checkCancel},
	} {
		if !slices.Contains(lacking, check.name) {
			t.Run(check.name, func(t *testing.T) { check.run(t, u) })
		}
	}
}

func checkLists(t *testing.T, u user) {
	tools, resources, templates, prompts, err := u.lists(within(t))
	if err != nil {
		t.Fatal(err)
	}
	for what, lists := range map[string][2][]string{
		"tools": {tools, {
			"add", "ask", "cancelled", "change", "chatter", "count", "fail", "places",
			"think", "touch", "visit", "wait",
		}},
		"resources": {resources, {"note://bytes", "note://text"}},
		"templates": {templates, {"note://numbered/{n}"}},
		"prompts":   {prompts, {"greet"}},
	} {
		for _, name := range lists[1] {
			if !slices.Contains(lists[0], name) {
				t.Errorf("the %s are %q; want %q", what, lists[0], lists[1])
			}
		}
	}
}

func checkResults(t *testing.T, u user) {
	if got, err := u.call(within(t), "add", addends{2, 3}); err != nil || !strings.Contains(got, "5") {
		t.Errorf("add = %s, %v", got, err)
	}
	failure := new(toolFailure)
	if got, err := u.call(within(t), "fail", nil); !errors.As(err, &failure) ||
		!strings.Contains(failure.text, "it went wrong") {
		t.Errorf("fail = %s, %v", got, err)
	}
	if got, err := u.call(within(t), "no-such-tool", nil); err == nil || errors.As(err, &failure) {
		t.Errorf("a tool that does not exist = %s, %v", got, err)
	}
}

func checkValidation(t *testing.T, u user) {
	failure := new(toolFailure)
	if got, err := u.call(within(t), "add", map[string]any{"A": 1, "B": "two"}); !errors.As(err,
		&failure) || !strings.Contains(failure.text, "B") {
		t.Errorf("add = %s, %v", got, err)
	}
}

func checkAnswer(tool, want string) func(*testing.T, user) {
	return func(t *testing.T, u user) {
		if got, err := u.call(within(t), tool, nil); err != nil || !strings.Contains(got, want) {
			t.Errorf("%s = %s, %v; want %q", tool, got, err, want)
		}
	}
}

func checkProgress(t *testing.T, u user) {
	const n = 20
	want := make([]float64, n)
	for i := range want {
		want[i] = float64(i + 1)
	}
	if got, err := u.count(within(t), n); err != nil || !slices.Equal(got, want) {
		t.Errorf("count: progress %v, %v", got, err)
	}
}

// await waits for an event and passes over others.
func await(t *testing.T, u user, want string) {
	t.Helper()
	for late := time.After(waitLimit / 3); ; {
		select {
		case event := <-u.events():
			if strings.Contains(event, want) {
				return
			}
		case <-late:
			t.Fatalf("there was no event %q", want)
		}
	}
}

func checkLog(t *testing.T, u user) {
	for len(u.events()) > 0 {
		<-u.events() // of before
	}
	if err := u.logFrom(within(t), "warning"); err != nil {
		t.Fatal(err)
	}
	if got, err := u.call(within(t), "chatter", nil); err != nil {
		t.Fatalf("chatter = %s, %v", got, err)
	}
	for late := time.After(waitLimit / 3); ; {
		select {
		case event := <-u.events():
			if strings.Contains(event, "log info") {
				t.Fatalf("%q, which is below the level", event)
			}
			if strings.Contains(event, "log error") {
				return
			}
		case <-late:
			t.Fatal("no error was logged")
		}
	}
}

func checkRead(t *testing.T, u user) {
	for uri, want := range map[string]string{
		"note://text": "A note.", "note://bytes": "\x00\x01\xff", "note://numbered/7": "Note 7.",
	} {
		if got, err := u.read(within(t), uri); err != nil || got != want {
			t.Errorf("read %s = %q, %v; want %q", uri, got, err, want)
		}
	}
	if got, err := u.read(within(t), "note://no-such-note"); err == nil {
		t.Errorf("read of what does not exist = %q", got)
	}
}

func checkPrompt(t *testing.T, u user) {
	if got, err := u.prompt(within(t), "greet", map[string]string{"name": "Bob"}); err != nil ||
		got != "Please greet Bob." {
		t.Errorf("greet = %q, %v", got, err)
	}
}

func checkComplete(t *testing.T, u user) {
	if got, err := u.complete(within(t), "greet", "name", "B"); err != nil ||
		!slices.Equal(got, []string{"Bea", "Bob"}) {
		t.Errorf("complete = %q, %v", got, err)
	}
}

func checkEvents(t *testing.T, u user, lacking []string) {
	if err := u.watch(t.Context(), "note://text"); err != nil {
		t.Fatal(err)
	}
	for tool, want := range map[string]string{
		"touch":  "updated note://text",
		"change": "changed tools",
	} {
		if slices.Contains(lacking, tool) {
			continue
		}
		if got, err := u.call(within(t), tool, nil); err != nil {
			t.Fatalf("%s = %s, %v", tool, got, err)
		}
		await(t, u, want)
	}
}

func checkCancel(t *testing.T, u user) {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	key := waiting{fmt.Sprintf("%s %p", t.Name(), &ctx)}
	if got, err := u.call(ctx, "wait", key); err == nil {
		t.Errorf("wait = %s", got)
	}
	for late := time.After(waitLimit / 3); ; {
		got, err := u.call(within(t), "cancelled", key)
		if err != nil {
			t.Fatal(err)
		}
		if got == "1" {
			return
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-late:
			t.Fatal("the handler was not cancelled")
		}
	}
}

// waits counts the calls of the tool "wait" that were cancelled.
type waits struct{ cancelled chan map[string]int }

func newWaits() *waits {
	w := &waits{make(chan map[string]int, 1)}
	w.cancelled <- map[string]int{}
	return w
}

// wait also counts, as key and began, the calls that have come.
func (w *waits) wait(ctx context.Context, key string) {
	w.add(key + began)
	<-ctx.Done()
	w.add(key)
}

const began = " began"

func (w *waits) add(key string) {
	counts := <-w.cancelled
	counts[key]++
	w.cancelled <- counts
}

func (w *waits) count(key string) string {
	counts := <-w.cancelled
	defer func() { w.cancelled <- counts }()
	return fmt.Sprint(counts[key])
}
