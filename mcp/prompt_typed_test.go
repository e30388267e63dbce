package mcp

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/spec"
)

type reviewArgs struct {
	Language string `json:"language" doc:"what the code is written in" enum:"go,rust"`
	Lines    uint8  `json:"lines"`
	Strict   *bool  `json:"strict"`
	Branch   string `json:"branch,omitempty"`
}

func review(ctx context.Context, in reviewArgs) (*PromptResult, error) {
	if RequestFrom(ctx) == nil {
		return nil, fmt.Errorf("the context is not that of the request")
	}
	strict := "unset"
	if in.Strict != nil {
		strict = fmt.Sprint(*in.Strict)
	}
	text := Text(fmt.Sprint(in.Language, " ", in.Lines, " ", strict, " ", in.Branch))
	return &PromptResult{Messages: []PromptMessage{{Role: "user", Content: text}}}, nil
}

// A typed prompt is the same in each revision, on a server alone and on one that is mounted twice.
func TestAddPrompt(t *testing.T) {
	for _, rev := range era.Revisions() {
		for _, mount := range []bool{false, true} {
			t.Run(fmt.Sprint(rev.Name, " ", mount), func(t *testing.T) { testAddPrompt(t, rev, mount) })
		}
	}
}

func testAddPrompt(t *testing.T, rev *era.Revision, mount bool) {
	s, name := NewServer("s", "1", nil), "review"
	AddPrompt(s, Prompt{Name: name}, review)
	if mount {
		middle, outer := NewServer("middle", "1", nil), NewServer("outer", "1", nil)
		outer.Mount("o", middle)
		middle.Mount("m", s)
		s, name = outer, "o__m__review"
	}
	c := connectedInProcess(t, s, &ClientOptions{Era: rev.Name})
	want := []spec.PromptArgument{
		{Name: "language", Description: "what the code is written in", Required: true},
		{Name: "lines", Required: true},
		{Name: "strict"},
		{Name: "branch"},
	}
	if all, err := c.Prompts(t.Context()); err != nil || len(all) != 1 || all[0].Name != name ||
		!slices.Equal(all[0].Arguments, want) {
		t.Errorf("%+v, %v", all, err)
	}
	for _, one := range []struct{ args, want string }{
		{"language=go lines=255 strict=false branch=main", "go 255 false main"},
		{"language=rust lines=0 strict=", "rust 0 unset "},
		{"language=go lines=1 unknown=1", "go 1 unset "},
		{"language=go lines=256", `the argument "lines" is "256"; it must be an integer from 0 to 255`},
		{"language=c lines=1", `the argument "language" is "c"; it must be one of go, rust`},
		{"strict=true", "requires the arguments language, lines"},
	} {
		args := map[string]string{}
		for pair := range strings.FieldsSeq(one.args) {
			key, value, _ := strings.Cut(pair, "=")
			args[key] = value
		}
		r, err := c.Prompt(t.Context(), name, args)
		switch {
		case err != nil:
			if !strings.Contains(err.Error(), one.want) || !strings.Contains(err.Error(), "Invalid params") {
				t.Errorf("%s: %v, want %s", one.args, err, one.want)
			}
		case r.Messages[0].Content.Text != one.want:
			t.Errorf("%s: %s, want %s", one.args, r.Messages[0].Content.Text, one.want)
		}
	}
	ref := spec.CompleteReference{Type: spec.RefPrompt, Name: name}
	for _, one := range []struct{ argument, prefix, want string }{
		{"language", "R", "[rust]"}, {"strict", "", "[true false]"}, {"branch", "", "[]"},
	} {
		if got, err := askCompletion(t, c, ref, one.argument, one.prefix); err != nil ||
			fmt.Sprint(got.Values) != one.want {
			t.Errorf("%s: %+v, %v", one.argument, got, err)
		}
	}
}

// Unknown arguments are refused, or dropped with one line in the log, wherever the option is set.
func TestAddPromptUnknownArguments(t *testing.T) {
	args := map[string]string{"language": "go", "lines": "1", "x": "1"}
	for _, strict := range []string{"", "inner", "outer"} {
		var log strings.Builder
		options := func(name string) *ServerOptions {
			o := &ServerOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))}
			if name == strict {
				o.Arguments = Strict
			}
			return o
		}
		inner, outer := NewServer("inner", "1", options("inner")),
			NewServer("outer", "1", options("outer"))
		AddPrompt(inner, Prompt{Name: "review"}, review)
		outer.Mount("", inner)
		c := connectedInProcess(t, outer, nil)
		for range 2 {
			_, err := c.Prompt(t.Context(), "review", args)
			if refused := err != nil &&
				strings.Contains(err.Error(), `has no argument "x"`); refused != (strict != "") {
				t.Errorf("strict %q: %v", strict, err)
			}
		}
		if n := strings.Count(log.String(), "unknown argument"); (n == 1) != (strict == "") || n > 1 {
			t.Errorf("strict %q: %d lines in the log", strict, n)
		}
	}
}

// A function of CompletePrompt is asked before the type, and the type before
// ServerOptions.Complete.
func TestAddPromptCompletion(t *testing.T) {
	s := NewServer("s", "1",
		&ServerOptions{Complete: func(
			context.Context, *spec.CompleteRequestParams,
		) (*spec.CompleteResult, error) {
			return &spec.CompleteResult{Completion: spec.Completion{Values: []string{"option"}}}, nil
		}})
	AddPrompt(s, Prompt{Name: "review"}, review)
	s.CompletePrompt("review", "strict",
		func(context.Context, string, map[string]string) ([]string, error) {
			return []string{"function"}, nil
		})
	c := connectedInProcess(t, s, nil)
	for argument, want := range map[string]string{
		"strict": "[function]", "language": "[go rust]",
		"branch": "[option]",
	} {
		got, err := askCompletion(t, c, spec.CompleteReference{Type: spec.RefPrompt, Name: "review"},
			argument, "")
		if err != nil || fmt.Sprint(got.Values) != want {
			t.Errorf("%s: %+v, %v", argument, got, err)
		}
	}
}

func TestAddPromptMisuse(t *testing.T) {
	s := NewServer("s", "1", nil)
	AddPrompt(s, Prompt{Name: "plain"},
		func(context.Context, struct{ A string }) (*PromptResult, error) {
			return nil, nil
		})
	if completes(s) {
		t.Error("a server that completes nothing says that it does")
	}
	for want, f := range map[string]func(){
		`the prompt "p" needs a function`: func() { AddPrompt[reviewArgs](s, Prompt{Name: "p"}, nil) },
		`a prompt needs a name`:           func() { AddPrompt(s, Prompt{}, review) },
		`the prompt "p" has Arguments`: func() {
			AddPrompt(s, Prompt{Name: "p", Arguments: []spec.PromptArgument{{Name: "language"}}}, review)
		},
		`the arguments of the prompt "p": struct { A []int }: the argument "A": []int is ` +
			`not supported`: func() {
			AddPrompt(s, Prompt{Name: "p"}, func(context.Context, struct{ A []int }) (*PromptResult, error) {
				return nil, nil
			})
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
}
