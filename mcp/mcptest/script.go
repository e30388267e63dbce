package mcptest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// A Model is a fake language model for ClientOptions.Sample: it gives its answers in order and
// keeps what it was asked. Its methods may be called by any number of goroutines at once.
type Model struct {
	script[*spec.CreateMessageRequestParams, *spec.CreateMessageResult]
}

// NewModel returns a model with these answers: see [Says] and [UsesTool]. The test fails when the
// model is asked once more, with what it was asked, and when an answer is left at its end.
func NewModel(tb testing.TB, answers ...*spec.CreateMessageResult) *Model {
	tb.Helper()
	m := &Model{}
	m.begin(tb, "the model", answers)
	return m
}

// Sample gives the next answer. It has the type of ClientOptions.Sample.
func (m *Model) Sample(_ context.Context, p *spec.CreateMessageRequestParams) (*spec.CreateMessageResult, error) {
	return m.next(p)
}

// Says is the answer of a model that has written text and is done.
func Says(text string) *spec.CreateMessageResult {
	return &spec.CreateMessageResult{
		Role: spec.RoleAssistant, Model: fakeModel, StopReason: spec.StopEndTurn, Content: []mcp.Content{mcp.Text(text)},
	}
}

// UsesTool is the answer of a model that wants the result of a tool, which revisions from
// 2025-11-25 on have. id is what the result refers to; input marshals to an object, and panics
// otherwise.
func UsesTool(id, name string, input any) *spec.CreateMessageResult {
	return &spec.CreateMessageResult{
		Role: spec.RoleAssistant, Model: fakeModel, StopReason: spec.StopToolUse,
		Content: []mcp.Content{{Type: spec.TypeToolUse, ID: id, Name: name, Input: object(input)}},
	}
}

const fakeModel = "fake"

// A User is a fake user for ClientOptions.Elicit: they give their replies in order, to forms and to
// pages, and keep what they were asked. Its methods may be called by any number of goroutines at
// once.
type User struct {
	script[*spec.ElicitRequestParams, *spec.ElicitResult]
}

// NewUser returns a user with these replies: see [Accepts]; &spec.ElicitResult{Action:
// spec.ElicitDecline} refuses, and spec.ElicitCancel dismisses. The test fails as with [NewModel].
func NewUser(tb testing.TB, replies ...*spec.ElicitResult) *User {
	tb.Helper()
	u := &User{}
	u.begin(tb, "the user", replies)
	return u
}

// Elicit gives the next reply. It has the type of ClientOptions.Elicit.
func (u *User) Elicit(_ context.Context, p *spec.ElicitRequestParams) (*spec.ElicitResult, error) {
	return u.next(p)
}

// Accepts is the reply of a user who has filled in a form with the members of values, which
// marshals to an object, and panics otherwise; nil agrees to visit a page, or leaves a form empty.
func Accepts(values any) *spec.ElicitResult {
	r := &spec.ElicitResult{Action: spec.ElicitAccept}
	if values != nil {
		r.Content = object(values)
	}
	return r
}

// object returns the JSON of an object.
func object(v any) []byte {
	raw, err := jsonv2.Append(nil, v)
	if err != nil || len(raw) == 0 || raw[0] != '{' {
		panic(fmt.Sprintf("mcptest: %T does not marshal to an object: %s, %v", v, raw, err)) //nolint:forbidigo // a mistake of the test
	}
	return raw
}

// A script gives answers in order.
type script[P, R any] struct {
	tb   testing.TB
	name string

	mu    sync.Mutex
	left  []R
	asked []P
}

func (s *script[P, R]) begin(tb testing.TB, name string, answers []R) {
	tb.Helper()
	s.tb, s.name, s.left = tb, name, slices.Clone(answers)
	tb.Cleanup(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if n := len(s.left); n > 0 && !tb.Failed() && !tb.Skipped() {
			tb.Errorf("mcptest: %s was asked %d times; answers left: %d", s.name, len(s.asked), n)
		}
	})
}

func (s *script[P, R]) next(p P) (answer R, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, p)
	if len(s.left) == 0 {
		raw, err := jsonv2.Append(nil, p)
		if err != nil {
			raw = []byte(err.Error())
		}
		s.tb.Errorf("mcptest: %s has no answer left for request %d: %.1000s", s.name, len(s.asked), raw)
		return answer, fmt.Errorf("%s has no answer left", s.name)
	}
	answer, s.left = s.left[0], s.left[1:]
	return answer, nil
}

// Asked returns what was asked so far, in order.
func (s *script[P, R]) Asked() []P {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}
