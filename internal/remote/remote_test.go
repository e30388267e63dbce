package remote

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/farcall-dev/farcall/jsonrpc"
)

func TestOwn(t *testing.T) {
	wire := &jsonrpc.Error{Code: 1, Message: "theirs"}
	ours := &jsonrpc.Error{Code: 2, Message: "ours"}
	theirs := &Error{wire}
	for name, test := range map[string]struct {
		err  error
		want *jsonrpc.Error
	}{
		"nil":             {nil, nil},
		"none":            {io.EOF, nil},
		"ours":            {fmt.Errorf("x: %w", ours), ours},
		"theirs":          {theirs, nil},
		"theirs, wrapped": {fmt.Errorf("x: %w", theirs), nil},
		"taken out":       {theirs.Wire, wire},
		"around theirs": {
			&jsonrpc.Error{Code: 2, Cause: theirs},
			&jsonrpc.Error{Code: 2, Cause: theirs},
		},
		"beside theirs":  {errors.Join(theirs, ours), ours},
		"passed":         {Pass(theirs), wire},
		"passed, inside": {fmt.Errorf("x: %w", Pass(fmt.Errorf("y: %w", theirs))), wire},
		"passed, beside": {errors.Join(Pass(io.EOF), theirs), nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := Own(test.err)
			if (got == nil) != (test.want == nil) || got != nil && got.Code != test.want.Code {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
	// errors.As still finds the other end's answer.
	for _, err := range []error{theirs, Pass(theirs), fmt.Errorf("x: %w", theirs)} {
		if got := (*jsonrpc.Error)(nil); !errors.As(err, &got) || got != wire ||
			!errors.Is(err, jsonrpc.Code(1)) {
			t.Errorf("%v does not show its answer", err)
		}
	}
	if Pass(nil) != nil {
		t.Error("no error became one")
	}
}
