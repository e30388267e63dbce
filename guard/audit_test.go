package guard_test

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/guard"
)

// decision is a line of the audit.
type decision struct {
	Principal, Kind, Method, Address, Transport, Call, Decision, Reason string
	Policies                                                            []string
	Error                                                               int
	Event, Outcome                                                      string
	Seq, Of                                                             uint64
	Repeats, Unwritten                                                  int
	IsError                                                             bool
	DurationMicros, RequestBytes                                        int
	ResultBytes                                                         *int
	Params                                                              map[string]any
}

// lines reads the audit of a closed guard.
func lines(t *testing.T, name string) (all []decision) {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	in := bufio.NewScanner(f)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var d decision
		if err := json.Unmarshal(in.Bytes(), &d); err != nil {
			t.Fatalf("%v: %s", err, in.Text())
		}
		all = append(all, d)
	}
	return all
}

// decisions are the lines of decisions.
func decisions(all []decision) []decision {
	return slices.DeleteFunc(all, func(d decision) bool { return d.Decision == "" })
}

func TestAudit(t *testing.T) {
	name := filepath.Join(t.TempDir(), "audit.jsonl")
	c := &guard.Config{
		Keys:  []guard.Key{keyOf("ci", goodKey)},
		Allow: []guard.Rule{{Name: "sums", Principals: []string{"ci"}, Calls: []string{"math/*"}}},
	}
	c.Audit.File, c.Audit.Params, c.Audit.Redact = name, true, []string{"note"}
	c.Limits.Rates = []guard.Rate{{Limit: 1, Calls: []string{"math/add"}}}
	s := newSite(t, c, nil)
	s.call("math/add", `{"a":1,"password":"canary-1","deep":{"api_key":"canary-2","note":"canary-3"}}`,
		asCI).wants(t, "service ci by key")
	s.call("math/add", "", asCI).wants(t, limited)
	s.call("admin/stop", "", asCI).wants(t, denied)
	s.call("who", "", bearer("canary-4")).wants(t, unauthenticated)
	s.call("who", "").wants(t, unauthenticated)
	s.call("math/add", `{"a":1,"a":"canary-6"}`, asCI)
	s.call("forged\\nline", "", asCI).wants(t, denied)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, canary := range []string{"canary-1", "canary-2", "canary-3", "canary-4", goodKey} {
		if strings.Contains(string(raw), canary) {
			t.Errorf("%s is in the audit", canary)
		}
	}
	if info, err := os.Stat(name); err != nil ||
		runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	all := decisions(lines(t, name))
	want := []decision{
		{Principal: "ci", Call: "math/add", Decision: "allowed"},
		{Principal: "ci", Call: "math/add", Decision: "limited", Error: int(limited)},
		{Principal: "ci", Call: "admin/stop", Decision: "denied", Error: int(denied)},
		{Call: "http POST /rpc", Decision: "refused", Error: int(unauthenticated)},
		{Call: "http POST /rpc", Decision: "refused", Error: int(unauthenticated)},
		{Principal: "ci", Call: "math/add", Decision: "denied", Error: -32602},
		{Principal: "ci", Call: "forged\nline", Decision: "denied", Error: int(denied)},
	}
	if len(all) != len(want) {
		t.Fatalf("%d lines:\n%s", len(all), raw)
	}
	for i, w := range want {
		got := all[i]
		if got.Principal != w.Principal || got.Call != w.Call || got.Decision != w.Decision ||
			got.Error != w.Error || got.Address != "127.0.0.1" || got.Transport != "http" {
			t.Errorf("line %d: %+v", i, got)
		}
	}
	if first := all[0]; len(first.Policies) != 1 || first.Policies[0] != "sums" ||
		first.Params["a"] != 1.0 || first.Kind != "service" || first.Method != "key" {
		t.Errorf("%+v", first)
	}
	s.call("ping", "", asCI).wants(t, unavailable) // it is closed
}

// What cannot be written down does not happen.
func TestAuditCannotBeWritten(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("there is no /dev/full")
	}
	c := &guard.Config{Anonymous: true}
	c.Audit.File, c.Audit.Params = "/dev/full", true
	s := newSite(t, c, nil)
	refused := false
	list := `["x"` + strings.Repeat(`,"xxxxxxxxxxxxxxxxxxxx"`, 2000) + `]`
	for range 2000 { // what waits for the disk is bounded
		got := s.call("who", list)
		if got.code == unavailable {
			refused = true
			break
		}
		got.wants(t, "anonymous anonymous by none")
	}
	if !refused {
		t.Error("the buffer was not full after 2000 calls")
	}
	if err := s.Close(); err == nil {
		t.Error("Close says that all is well")
	}
	s.call("who", "").wants(t, unavailable)
}
