// Package cancel answers one question: what may the other end of a call know of why it was
// cancelled?
package cancel

import (
	"context"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/farcall-dev/farcall/internal/scan"
)

// MaxReason bounds the text of a reason, in bytes.
const MaxReason = 1024

// Reason returns what the other end of a call may know of why its context ended: the text of its
// cause, bounded. "": it was cancelled without a cause. A reason that came from another process is
// passed on as it came: its error has a method CancelReason.
func Reason(ctx context.Context) string { return Text(context.Cause(ctx)) }

// Text returns the reason that a cause is.
func Text(cause error) string {
	var came interface{ CancelReason() string }
	switch {
	case cause == nil || cause == context.Canceled: //nolint:errorlint // one that wraps it says more
		return ""
	case errors.As(cause, &came):
		return Bound(came.CancelReason())
	case errors.Is(cause, context.DeadlineExceeded):
		return "deadline exceeded"
	}
	return Bound(cause.Error())
}

// Given returns the reason that a message gives. Its JSON may be anything. "": none.
func Given(raw []byte) string {
	if len(raw) == 0 || raw[0] != '"' {
		return ""
	}
	return Bound(string(scan.Unquote(raw)))
}

// Bound returns a text of at most MaxReason bytes, which is UTF-8.
func Bound(text string) string {
	text = strings.ToValidUTF8(text[:min(len(text), 4*MaxReason)], "\uFFFD")
	if len(text) <= MaxReason {
		return text
	}
	i := MaxReason
	for !utf8.RuneStart(text[i]) {
		i--
	}
	return text[:i]
}
