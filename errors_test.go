package farcall

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/jsonrpc"
)

type quotaError struct {
	Limit int   `json:"limit"`
	cause error // stays here
}

func (e *quotaError) Error() string { return fmt.Sprintf("the limit is %d", e.Limit) }
func (e *quotaError) Unwrap() error { return e.cause }

type fieldError struct{ Field string }

func (e fieldError) Error() string { return "bad " + e.Field }

type plainError struct{}

func (e plainError) Error() string { return "nothing more" }

// opaqueError would arrive empty.
type opaqueError struct{ have, want int }

func (e opaqueError) Error() string { return fmt.Sprintf("have %d, want %d", e.have, e.want) }

const (
	quotaCode jsonrpc.Code = 2001
	fieldCode jsonrpc.Code = 2002
	plainCode jsonrpc.Code = 2003
)

func testErrors() *Errors {
	m := &Errors{}
	MapError[*quotaError](m, quotaCode)
	MapError[fieldError](m, fieldCode)
	MapError[plainError](m, plainCode)
	return m
}

func TestWireError(t *testing.T) {
	wire := &jsonrpc.Error{Code: 1, Message: "own", Cause: io.EOF}
	quota := &quotaError{Limit: 5}
	var noWire *jsonrpc.Error
	var noQuota *quotaError
	parse := &jsonrpc.Error{
		Code: jsonrpc.ParseError, Message: "Parse error",
		Cause: errors.New("bad number at offset 7"),
	}
	for name, test := range map[string]struct {
		err            error
		want, detailed string
	}{
		"unknown": {
			errors.New("a secret"), `-32603 Internal error`,
			`-32603 Internal error {"exception":"*errors.errorString","text":"a secret"}`,
		},
		"wrapped": {
			fmt.Errorf("more: %w", plainError2{}), `-32603 Internal error`,
			`-32603 Internal error {"exception":"farcall.plainError2","text":"more: plain"}`,
		},
		"own": {wire, `1 own`, `1 own {"exception":"*errors.errorString","text":"EOF"}`},
		"own, wrapped": {
			fmt.Errorf("hidden: %w", wire), `1 own`,
			`1 own {"exception":"*errors.errorString","text":"EOF"}`,
		},
		"own with data": {
			&jsonrpc.Error{Code: 1, Message: "m", Data: jsonrpc.Raw("7"), Cause: io.EOF},
			`1 m 7`, `1 m 7`,
		},
		"without cause": {&jsonrpc.Error{Code: 1, Message: "m"}, `1 m`, `1 m`},
		"refusal": {
			parse, `-32700 Parse error`, `-32700 Parse error {"reason":"bad number at offset 7"}`,
		},
		"deadline": {
			fmt.Errorf("x: %w", context.DeadlineExceeded), `-32009 Request timed out`,
			`-32009 Request timed out {"exception":"context.deadlineExceededError","text":"x: context ` +
				`deadline exceeded"}`,
		},
		"cancelled": {
			context.Canceled, `-32800 Request cancelled`,
			`-32800 Request cancelled {"exception":"*errors.errorString","text":"context canceled"}`,
		},
		"panic": {
			&jsonrpc.Error{
				Code: jsonrpc.InternalError, Message: "Internal error", Cause: panicError{"boom"},
			}, `-32603 Internal error`, `-32603 Internal error {"exception":"panic","text":"panic: boom"}`,
		},
		"nil wire": {
			noWire, `-32603 Internal error`,
			`-32603 Internal error {"exception":"*errors.errorString","text":"the handler returned a nil ` +
				`*jsonrpc.Error as its error"}`,
		},
		"nil mapped": {noQuota, `-32603 Internal error`, ``},
		"mapped":     {quota, `2001 the limit is 5 {"limit":5}`, `2001 the limit is 5 {"limit":5}`},
		"mapped, inside": {
			fmt.Errorf("hidden: %w", errors.Join(io.EOF, quota)),
			`2001 the limit is 5 {"limit":5}`, ``,
		},
		"mapped value":   {fieldError{"a"}, `2002 bad a {"Field":"a"}`, ``},
		"without fields": {plainError{}, `2003 nothing more {}`, ``},
		"outer mapped":   {&quotaError{1, wire}, `2001 the limit is 1 {"limit":1}`, ``},
		"outer wire":     {&jsonrpc.Error{Code: 1, Message: "own", Cause: quota}, `1 own`, ``},
	} {
		t.Run(name, func(t *testing.T) {
			show := func(details bool) string {
				e := wireError(test.err, testErrors(), details)
				return strings.TrimSpace(fmt.Sprintf("%d %s %s", int(e.Code), e.Message, e.Data))
			}
			if got := show(false); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
			if got := show(true); test.detailed != "" && got != test.detailed {
				t.Errorf("with details: got %s, want %s", got, test.detailed)
			}
		})
	}
	if wire.Data != nil || parse.Data != nil {
		t.Error("the handler's error was changed")
	}
}

type plainError2 struct{}

func (plainError2) Error() string { return "plain" }

// The cause of what goes out is kept, for the log.
func TestWireErrorKeepsTheCause(t *testing.T) {
	cause := errors.New("a secret")
	for _, err := range []error{cause, &quotaError{1, cause}, fmt.Errorf("%w", cause)} {
		if got := wireError(err, testErrors(), false); !errors.Is(got, cause) {
			t.Errorf("%v: the cause is %v", err, got.Cause)
		}
	}
}

func TestErrorsDecode(t *testing.T) {
	m := testErrors()
	for _, test := range []struct {
		code jsonrpc.Code
		data string
		want string // of %#v; "" for none
	}{
		{quotaCode, `{"limit":5,"new":1}`, "the limit is 5"},
		{quotaCode, `{"new":1,"limit":0}`, "the limit is 0"},
		{quotaCode, `{"limit":0}`, "the limit is 0"},
		{quotaCode, ``, "the data of code 2001 is no *farcall.quotaError: there is none"},
		{quotaCode, `null`, "the data of code 2001 is no *farcall.quotaError: it is null"},
		{quotaCode, `"x"`, "the data of code 2001 is no *farcall.quotaError: "},
		{quotaCode, `{"Limit":5}`, "the data of code 2001 is no *farcall.quotaError: "},
		{quotaCode, `{"have":1,"want":2}`, `unknown object member name "have"`},
		{fieldCode, `{"Field":"a"}`, "bad a"},
		{fieldCode, `{}`, "bad "},
		{plainCode, ``, "nothing more"},
		{plainCode, `{}`, "nothing more"},
		{9999, `{"limit":5}`, ""},
	} {
		e := &jsonrpc.Error{Code: test.code}
		if test.data != "" {
			e.Data = jsonrpc.Raw(test.data)
		}
		got := ""
		if err := m.decode(e); err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, test.want) || test.want == "" && got != "" {
			t.Errorf("%d %s: got %q, want %q", int(test.code), test.data, got, test.want)
		}
	}
	if err := (*Errors)(nil).decode(&jsonrpc.Error{}); err != nil {
		t.Error(err)
	}
}

func TestMapErrorRefusesMisuse(t *testing.T) {
	for want, f := range map[string]func(m *Errors){
		"is an interface":         func(m *Errors) { MapError[error](m, 1) },
		"has a code already":      func(m *Errors) { MapError[*jsonrpc.Error](m, 1) },
		"jsonrpc.Code has a code": func(m *Errors) { MapError[jsonrpc.Code](m, 1) },
		"none is exported":        func(m *Errors) { MapError[opaqueError](m, 1) },
		"2001 is mapped already":  func(m *Errors) { MapError[plainError2](m, quotaCode) },
	} {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, want) {
					t.Errorf("got %q, want %q", got, want)
				}
			}()
			f(testErrors())
		}()
	}
}

// errors.Is and errors.As find on this end what the handler returned on the
// other.
func TestErrorsAcrossTheWire(t *testing.T) {
	mux := NewMux()
	Handle(mux, "spend", func(_ context.Context, n int) (int, error) {
		return 0, fmt.Errorf("while spending %d: %w", n, &quotaError{n, io.EOF})
	})
	Handle(mux, "wait", func(context.Context, struct{}) (int, error) {
		return 0, context.DeadlineExceeded
	})
	a, b := Pipe()
	server, client := NewPeer(a, mux, &Options{Errors: testErrors()}),
		NewPeer(b, nil, &Options{Errors: testErrors()})
	defer server.Close()
	defer client.Close()

	_, err := Call[int](t.Context(), client, "spend", []int{7})
	var quota *quotaError
	if !errors.As(err, &quota) || quota.Limit != 7 || !errors.Is(err, quotaCode) {
		t.Errorf("got %v", err)
	}
	if errors.Is(err, io.EOF) || strings.Contains(err.Error(), "while") {
		t.Errorf("%v came over the wire, which is private", err)
	}
	strange := &Errors{}
	MapError[fieldError](strange, quotaCode) // another type than the server's
	c, d := Pipe()
	server2, client2 := NewPeer(c, mux, &Options{Errors: testErrors()}),
		NewPeer(d, nil, &Options{Errors: strange})
	defer server2.Close()
	defer client2.Close()
	var field fieldError
	if err := client2.Call(t.Context(), "spend", []int{7}, nil); errors.As(err, &field) ||
		!errors.Is(err, quotaCode) ||
		!strings.Contains(err.Error(),
			`the limit is 7 (code 2001): the data of code 2001 is no farcall.fieldError: `) {
		t.Errorf("decoded as what it is not: %v", err)
	}
	if _, err = Call[int](t.Context(), client, "wait", nil); !errors.Is(err, jsonrpc.Timeout) {
		t.Errorf("got %v", err)
	}
	if _, err = Call[int](t.Context(), client, "gone", nil); !errors.Is(err, jsonrpc.MethodNotFound) ||
		errors.As(err, &quota) {
		t.Errorf("got %v", err)
	}
}

func ExampleMapError() {
	codes := &Errors{}
	MapError[*quotaError](codes, 2001) // on both ends

	mux := NewMux()
	Handle(mux, "spend", func(_ context.Context, amount int) (struct{}, error) {
		return struct{}{}, &quotaError{Limit: 100}
	})
	a, b := Pipe()
	server, client := NewPeer(a, mux, &Options{Errors: codes}),
		NewPeer(b, nil, &Options{Errors: codes})
	defer server.Close()
	defer client.Close()

	err := client.Call(context.Background(), "spend", []int{500}, nil)
	var quota *quotaError
	fmt.Println(errors.As(err, &quota), quota.Limit)
	// Output: true 100
}
