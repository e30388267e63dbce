//go:build !windows

package npipe_test

import (
	"errors"
	"testing"

	"github.com/farcall-dev/farcall/internal/npipe"
)

func TestUnsupported(t *testing.T) {
	if _, err := npipe.Dial(t.Context(), "x"); !errors.Is(err, npipe.ErrUnsupported) {
		t.Error(err)
	}
	if _, err := npipe.Listen("x"); !errors.Is(err, npipe.ErrUnsupported) {
		t.Error(err)
	}
}
