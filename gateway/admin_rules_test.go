package gateway_test

import (
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/gateway"
)

// A rule about changes of an upstream that does not exist is a notice; those of the gateway as a
// whole name none.
func TestRulesOfChanges(t *testing.T) {
	for pattern, want := range map[string]string{
		"gateway/admin files/*":  "",
		"gateway/admin *":        "",
		"gateway/admin reload":   "",
		"gateway/admin flies/*":  `no upstream is called "flies"`,
		"gateway/admin */enable": "",
	} {
		text := "guard: {anonymous: true, allow: ['" + pattern +
			"']}\nupstreams:\n  files: {command: x}\n  web: {command: y}\n"
		c, err := gateway.Load(writeFile(t, t.TempDir()+"/farcall.yaml", text))
		if err != nil {
			t.Fatal(err)
		}
		var got strings.Builder
		for _, n := range c.Notices() {
			if strings.Contains(n.Message, "gateway/admin") {
				got.WriteString(n.Message)
			}
		}
		if want == "" && got.String() != "" || !strings.Contains(got.String(), want) {
			t.Errorf("%s: %q", pattern, got.String())
		}
	}
}
