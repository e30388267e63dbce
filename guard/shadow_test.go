package guard_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// shadowSite is a site with an audit and a log.
func shadowSite(t *testing.T, c *guard.Config) (s *site, audit func() string, log *bytes.Buffer) {
	t.Helper()
	log = new(bytes.Buffer)
	c.Audit.File = filepath.Join(t.TempDir(), "audit.jsonl")
	s = newSite(t, c, &guard.Options{
		Logger: slog.New(slog.NewTextHandler(log, nil)),
		Schema: func(_ context.Context, method, _ string) jsonrpc.Raw {
			if method == "math/add" {
				return jsonrpc.Raw(`{"properties":{"n":{"type":"integer"}}}`)
			}
			return nil
		},
	})
	return s, func() string {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(c.Audit.File)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}, log
}

// TestShadow: a guard on trial refuses unauthenticated callers only, and reports what it would
// refuse.
func TestShadow(t *testing.T) {
	c := &guard.Config{
		Mode: "shadow", Keys: []guard.Key{keyOf("ci", goodKey, "dev")},
		Allow: []guard.Rule{{Calls: []string{"who", "math/*"}}},
		Deny:  []guard.Rule{{Name: "never", Calls: []string{"admin/*"}}},
	}
	c.Resource.URL, c.Resource.Servers = audience, []string{issuer}
	c.Resource.Scopes = map[string][]string{"math/sum": {"sum"}}
	c.Limits.Rates = []guard.Rate{{Limit: 5, Every: time.Hour}}
	c.Params.MaxDepth = 4
	s, audit, log := shadowSite(t, c)
	const ok = "service ci by key"
	if !strings.Contains(log.String(), "SHADOW MODE: THE GUARD ENFORCES NOTHING BUT AUTHENTICATION") {
		t.Errorf("there is no warning at the start: %s", log)
	}
	s.call("who", "").wants(t, unauthenticated)
	s.call("who", "", bearer(otherKey)).wants(t, unauthenticated)
	for _, call := range [][2]string{
		{"who", `{}`},
		{"admin/stop", `{}`},
		{"tools/call", `{"name":"x"}`},
		{"math/add", `{"n":"1"}`},
		{"who", `{"a":1,"a":2}`},
		{"who", `[[[[[]]]]]`},
		{"who", `{}`},
	} {
		s.call(call[0], call[1], bearer(goodKey)).wants(t, ok)
	}
	if n := s.WouldRefuse(); n != 6 {
		t.Errorf("%d calls would have been refused", n)
	}
	text := audit()
	for _, want := range []string{
		`"decision":"allowed"`, `"decision":"would deny"`,
		`"call":"admin/stop","policies":["never"],"reason":"Permission denied: denied by never"`,
		`"reason":"Invalid params: property \"n\": got string, want integer`, `"decision":"would limit"`,
		`"reason":"Rate limited: `, `"decision":"refused"`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in the audit:\n%s", want, text)
		}
	}
	for line := range strings.Lines(text) {
		if strings.Contains(line, `"decision":"would`) && strings.Contains(line, `"error":`) {
			t.Errorf("a call that passed has an error: %s", line)
		}
	}
	if got := log.String(); !strings.Contains(got,
		`the guard would deny" component=guard principal=ci call=admin/stop reason="Permission denied: `+
			`denied by never" total=1`) {
		t.Errorf("log: %s", got)
	}
	c.Mode = "off"
	if list := c.Check(); len(list) == 0 || list[0].Path != "mode" || list[0].Warning {
		t.Errorf("%+v", list)
	}
}

// TestShadowOfPolicies: policies on trial deny nothing, allow nothing, and the others are enforced.
func TestShadowOfPolicies(t *testing.T) {
	c := &guard.Config{
		Anonymous: true,
		Allow: []guard.Rule{
			{Calls: []string{"who", "tools/*"}},
			{Calls: []string{"math/*"}, Mode: "shadow"},
		},
		Deny: []guard.Rule{
			{Name: "new", Calls: []string{"tools/call *"}, Mode: "shadow"},
			{Calls: []string{"admin/*"}, Mode: "enforce"},
		},
		Cedar: `@id("cedar") @mode("shadow") forbid(principal, action, resource == Method::"who") ` +
			`when { context.arguments has secret };`,
	}
	s, audit, log := shadowSite(t, c)
	const ok = "anonymous anonymous by none"
	if got := log.String(); !strings.Contains(got, "SHADOW MODE: SOME POLICIES ARE NOT ENFORCED") ||
		!strings.Contains(got, `policies="[new allow[1] cedar]"`) {
		t.Errorf("log: %s", got)
	}
	s.call("who", `{}`).wants(t, ok)
	s.call("who", `{"secret":1}`).wants(t, ok)
	s.call("who", `{"Secret":1}`).wants(t, ok)
	s.call("tools/call", `{"name":"x"}`).wants(t, ok)
	s.call("math/add", `{}`).wants(t, denied)
	s.call("admin/stop", `{}`).wants(t, denied)
	if n := s.WouldRefuse(); n != 3 {
		t.Errorf("%d calls would have been refused", n)
	}
	text := audit()
	for _, want := range []string{
		`"decision":"would deny","principal":"anonymous"`,
		`"policies":["cedar"],"reason":"Permission denied: denied by cedar"`, `"policies":["new"]`,
		`could be taken for`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in the audit:\n%s", want, text)
		}
	}
	if n := strings.Count(text, `"decision":"denied"`); n != 2 {
		t.Errorf("%d calls were denied:\n%s", n, text)
	}
	for name, c := range map[string]*guard.Config{
		"rule":  {Allow: []guard.Rule{{Calls: []string{"*"}, Mode: "shadwo"}}},
		"cedar": {Cedar: `@mode("shadwo") permit(principal, action, resource);`},
	} {
		if _, err := guard.New(c, nil); err == nil ||
			!strings.Contains(err.Error(), `there is no mode "shadwo"`) &&
				!strings.Contains(err.Error(), `there is no mode \"shadwo\"`) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
