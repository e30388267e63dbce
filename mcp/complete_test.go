package mcp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// completing returns a server with a prompt and a template that have the arguments a and b, without
// functions that complete them.
func completing(o *ServerOptions) *Server {
	s := NewServer("completing", "1", o)
	s.AddPrompt(Prompt{Name: "p", Arguments: []spec.PromptArgument{{Name: "a"}, {Name: "b"}}},
		func(context.Context, map[string]string) (*PromptResult, error) { return nil, nil })
	s.AddTemplate(ResourceTemplate{URITemplate: "x:{a}{?b}", Name: "x"},
		func(context.Context, string, Vars) ([]ResourceContents, error) { return nil, nil })
	return s
}

// refs returns the references of a prompt and of the template of completing.
func refs(prompt string) []spec.CompleteReference {
	return []spec.CompleteReference{
		{Type: spec.RefPrompt, Name: prompt},
		{Type: spec.RefResource, URI: "x:{a}{?b}"},
	}
}

func askCompletion(
	t *testing.T, c *Client, ref spec.CompleteReference, argument, value string,
) (spec.Completion, error) {
	t.Helper()
	r, err := c.Complete(t.Context(), &spec.CompleteRequestParams{
		Ref: ref, Argument: spec.CompleteArgument{Name: argument, Value: value},
		Context: &spec.CompleteContext{Arguments: map[string]string{"a": "known"}},
	})
	if err != nil {
		return spec.Completion{}, err
	}
	return r.Completion, nil
}

// Each argument has its function in each revision, on a server alone and on one that is mounted
// twice.
func TestCompleteArguments(t *testing.T) {
	for _, rev := range era.Revisions() {
		for _, mount := range []bool{false, true} {
			t.Run(fmt.Sprint(rev.Name, " ", mount), func(t *testing.T) {
				testCompleteArguments(t, rev, mount)
			})
		}
	}
}

func testCompleteArguments(t *testing.T, rev *era.Revision, mount bool) {
	s := completing(nil)
	many := func(_ context.Context, value string, others map[string]string) ([]string, error) {
		if value == "fail" {
			return nil, errors.New("no values")
		}
		return slices.Repeat([]string{value + others["a"]}, 150), nil
	}
	one := func(ctx context.Context, value string, _ map[string]string) ([]string, error) {
		if RequestFrom(ctx) == nil {
			return nil, errors.New("the context is not that of the request")
		}
		return []string{value + "!"}, nil
	}
	s.CompletePrompt("p", "a", one)
	s.CompletePrompt("p", "b", many)
	s.CompleteTemplate("x:{a}{?b}", "a", one)
	s.CompleteTemplate("x:{a}{?b}", "b", many)
	prompt := "p"
	if mount {
		middle, outer := NewServer("middle", "1", nil), NewServer("outer", "1", nil)
		outer.Mount("o", middle)
		middle.Mount("m", s)
		s, prompt = outer, "o__m__p"
	}
	c := connectedInProcess(t, s, &ClientOptions{Era: rev.Name})
	known := ""
	if rev.Elicitation { // as old as the context of completions
		known = "known"
	}
	for _, ref := range refs(prompt) {
		got, err := askCompletion(t, c, ref, "a", "v")
		if err != nil || !slices.Equal(got.Values, []string{"v!"}) || got.HasMore || got.Total == nil ||
			*got.Total != 1 {
			t.Errorf("%s a: %+v, %v", ref.Type, got, err)
		}
		got, err = askCompletion(t, c, ref, "b", "v")
		if err != nil || len(got.Values) != 100 || got.Values[99] != "v"+known || !got.HasMore ||
			got.Total == nil || *got.Total != 150 {
			t.Errorf("%s b: %+v, %v", ref.Type, got, err)
		}
		if got, err = askCompletion(t, c, ref, "c", "v"); err != nil || len(got.Values) != 0 {
			t.Errorf("%s c: %+v, %v", ref.Type, got, err)
		}
		if _, err = askCompletion(t, c, ref, "b", "fail"); err == nil {
			t.Errorf("%s b: the error of the function is lost", ref.Type)
		}
	}
}

// ServerOptions.Complete has all other arguments. What replaces an offer keeps the function, and
// what is removed loses it.
func TestCompleteFallback(t *testing.T) {
	s := completing(
		&ServerOptions{Complete: func(
			context.Context, *spec.CompleteRequestParams,
		) (*spec.CompleteResult, error) {
			return &spec.CompleteResult{Completion: spec.Completion{Values: []string{"fallback"}}}, nil
		}})
	own := func(context.Context, string, map[string]string) ([]string, error) {
		return []string{"own"}, nil
	}
	s.CompletePrompt("p", "a", own)
	s.CompleteTemplate("x:{a}{?b}", "a", own)
	c := connectedInProcess(t, s, nil)
	want := func(argument, want string) {
		t.Helper()
		for _, ref := range refs("p") {
			if got, err := askCompletion(t, c, ref, argument, ""); err != nil ||
				!slices.Equal(got.Values, []string{want}) {
				t.Errorf("%s %s: %+v, %v; want %s", ref.Type, argument, got, err, want)
			}
		}
	}
	add := func() {
		s.AddPrompt(Prompt{Name: "p"}, func(context.Context, map[string]string) (*PromptResult, error) {
			return nil, nil
		})
		s.AddTemplate(ResourceTemplate{URITemplate: "x:{a}{?b}", Name: "new"},
			func(context.Context, string, Vars) ([]ResourceContents, error) { return nil, nil })
	}
	want("a", "own")
	want("b", "fallback")
	add()
	want("a", "own")
	s.RemovePrompt("p")
	s.RemoveTemplate("x:{a}{?b}")
	add()
	want("a", "fallback")
}

func TestCompleteMisuse(t *testing.T) {
	own := func(context.Context, string, map[string]string) ([]string, error) { return nil, nil }
	s, outer := completing(nil), NewServer("outer", "1", nil)
	outer.Mount("", s)
	for want, f := range map[string]func(){
		`needs a function`:                  func() { s.CompletePrompt("p", "a", nil) },
		`add "q", with "a", before`:         func() { s.CompletePrompt("q", "a", own) },
		`add "p", with "c", before`:         func() { s.CompletePrompt("p", "c", own) },
		`add "y:{a}", with "a", before`:     func() { s.CompleteTemplate("y:{a}", "a", own) },
		`add "x:{a}{?b}", with "c", before`: func() { s.CompleteTemplate("x:{a}{?b}", "c", own) },
		`the server "outer" has nothing`:    func() { outer.CompletePrompt("p", "a", own) },
		`the server "outer" has nothing to compl`: func() {
			outer.CompleteTemplate("x:{a}{?b}", "a", own)
		},
	} {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, want) {
					t.Errorf("got %s, want %s", got, want)
				}
			}()
			f()
		}()
	}
	if completes(s) || completes(outer) {
		t.Error("a server that completes nothing says that it does")
	}
	s.CompletePrompt("p", "a", own)
	if !completes(s) || !completes(outer) {
		t.Error("a server that completes does not say so")
	}
}
