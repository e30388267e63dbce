package gateway

import (
	"bytes"
	"testing"
)

// Nodes with other keys of sign-ins have another configuration, although its text only refers to
// them. Nothing of the keys is in what they compare.
func TestAlike(t *testing.T) {
	of := func(keys ...string) []byte {
		return (&Config{digest: []byte("text"), SignIn: signInConfig{Keys: keys}}).alike()
	}
	if one := of("one", "two"); bytes.Equal(one, of("one")) || bytes.Equal(one, of("two", "one")) ||
		bytes.Equal(one, of()) || !bytes.Equal(one, of("one", "two")) ||
		bytes.Contains(one, []byte("one")) {
		t.Errorf("%q", one)
	}
	if none := (&Config{SignIn: signInConfig{Keys: []string{"one"}}}).alike(); none != nil {
		t.Errorf("without a text: %q", none)
	}
}
