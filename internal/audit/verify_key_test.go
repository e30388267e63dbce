package audit

import (
	"bytes"
	"strings"
	"testing"
)

// Lines without a seal are no evidence where the log has a key: a stripped log does not pass.
func TestUnsealedWithKey(t *testing.T) {
	t.Parallel()
	const text = "{\"decision\":\"allowed\"}\n{\"decision\":\"denied\"}\n"
	if r := verifyText(t, text, nil); len(r.Findings) != 0 || len(r.Notes) != 1 {
		t.Errorf("without a key: %+v", r)
	}
	r := verifyText(t, text, &VerifyOptions{Key: bytes.Repeat([]byte("k"), 32)})
	if len(r.Findings) != 1 ||
		!strings.Contains(r.Findings[0].Message, "its 2 lines have no seal, and the log has a key") {
		t.Errorf("with a key: %+v", r)
	}
}
