package gateway

import (
	"testing"

	"github.com/farcall-dev/farcall/guard"
)

// An id cannot pose as the principal of an issuer: it has no separate credentials then.
func TestCredentialsName(t *testing.T) {
	for _, tt := range []struct {
		who  *guard.Principal
		want string
	}{
		{&guard.Principal{ID: "ada"}, "ada"},
		{&guard.Principal{ID: "ada", Issuer: "https://id.example.com"}, "https://id.example.com|ada"},
		{&guard.Principal{ID: "https://id.example.com|ada"}, ""},
		{nil, ""},
	} {
		if got := credentialsName(tt.who); got != tt.want {
			t.Errorf("%+v: %q", tt.who, got)
		}
	}
}
