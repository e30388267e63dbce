package farcall

import (
	"cmp"
	"errors"
	"reflect"
	"strconv"
	"strings"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/validate"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// A problem says which parameter is wrong and why.
type problem struct {
	member     string
	index      int // instead of the member, when positional
	positional bool
	step       string // to the parameter; "": its name or index
	pointer    string // to what is wrong inside the parameter
	reason     string
	want, got  string // JSON types
	cause      *validate.Error
}

const (
	wrongType  = "wrong type"
	outOfRange = "out of range"
)

// problemOf says why the library could not read a t.
func problemOf(err error, t reflect.Type) problem {
	e := jsonv2.Explain(err)
	pr := problem{pointer: e.Pointer, reason: e.Reason}
	if e.Reason == "unknown" || e.Reason == "duplicate" {
		return pr
	}
	if e.Pointer != "" && e.Want != nil {
		t = e.Want
	}
	pr.want, pr.got = expected(t), e.Got
	if pr.reason == "" {
		if pr.reason = wrongType; pr.want == "" || pr.want == pr.got || pr.got == "" {
			pr.reason, pr.want, pr.got = "invalid value", "", ""
		}
	}
	return pr
}

// at says at which position the parameter was given; -1 is by name.
func (pr problem) at(position int) problem {
	if position >= 0 {
		pr.step = strconv.Itoa(position)
	}
	return pr
}

// pointerSteps escapes a step of a JSON Pointer (RFC 6901 §3).
var pointerSteps = strings.NewReplacer("~", "~0", "/", "~1")

// refuse returns the answer.
func (pr problem) refuse() *jsonrpc.Error {
	data := []byte{'{'}
	add := func(name, value string) {
		if value == "" {
			return
		}
		if len(data) > 1 {
			data = append(data, ',')
		}
		data = jsonrpc.AppendString(data, name)
		data = jsonrpc.AppendString(append(data, ':'), value)
	}
	who, step := "the params", pr.step
	if pr.positional {
		data = strconv.AppendInt(append(data, `"member":`...), int64(pr.index), 10)
		who, step = "the parameter at index "+strconv.Itoa(pr.index), strconv.Itoa(pr.index)
	} else if pr.member != "" {
		// A name that the caller made up may have any length.
		name := pr.member[:min(len(pr.member), maxEcho)]
		add("member", name)
		who, step = "the parameter "+strconv.Quote(name), cmp.Or(step, name)
	}
	if step != "" {
		pointer := "/" + pointerSteps.Replace(step) + pr.pointer
		add("pointer", pointer[:min(len(pointer), maxEcho)])
	}
	add("reason", pr.reason)
	add("expected", pr.want)
	add("got", pr.got)
	if pr.cause != nil {
		add("message", pr.cause.Problems[0].Message)
	}
	return &jsonrpc.Error{
		Code: jsonrpc.InvalidParams, Message: "Invalid params", Data: append(data, '}'),
		Cause: errors.New(who + ": " + pr.reason),
	}
}

// maxEcho bounds what an answer repeats of the caller's names.
const maxEcho = 256
