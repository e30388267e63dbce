package guard_test

import (
	"testing"

	"github.com/farcall-dev/farcall/guard"
)

// Two principals have one owner only when they were authenticated in the same way as the same one,
// however their names read, and anonymous ones have none.
func TestPrincipalOwner(t *testing.T) {
	taken := map[string]string{}
	for name, p := range map[string]*guard.Principal{
		"key ada, a user":           {ID: "ada", Kind: "user", Method: "key"},
		"key ada, an agent":         {ID: "ada", Kind: "agent", Method: "key"},
		"certificate ada":           {ID: "ada", Kind: "user", Method: "mtls"},
		"token ada":                 {ID: "ada", Kind: "user", Method: "jwt", Issuer: "https://id.example.com"},
		"key with the token's name": {ID: "https://id.example.com|ada", Kind: "user", Method: "key"},
		"key named anonymous":       {ID: "anonymous", Kind: "user", Method: "key"},
		"of the program":            {ID: "ada"},
	} {
		o := p.Owner()
		if other, ok := taken[o]; ok || o == "" {
			t.Errorf("%s and %s have the owner %q", name, other, o)
		}
		taken[o] = name
		again := *p
		again.Roles = []string{"changed"}
		if again.Owner() != o {
			t.Errorf("%s has another owner with other roles", name)
		}
	}
	for name, p := range map[string]*guard.Principal{
		"nil":               nil,
		"anonymous":         {ID: "anonymous", Kind: "anonymous", Method: "none"},
		"of kind anonymous": {ID: "ada", Kind: "anonymous", Method: "key"},
		"without an id":     {Kind: "user", Method: "key"},
	} {
		if o := p.Owner(); o != "" {
			t.Errorf("%s has the owner %q", name, o)
		}
	}
}
