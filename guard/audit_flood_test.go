package guard_test

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/internal/audit"
	"github.com/farcall-dev/farcall/internal/race"
)

const secondKey = "fk_guest_0123456789abcdef0123456789abcdef"

// verify reads all files of an audit and verifies their chain.
func verify(t *testing.T, name string) (all []decision, report *audit.Report) {
	t.Helper()
	files, err := audit.Files(name)
	if err != nil {
		t.Fatal(err)
	}
	var texts []audit.Text
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		texts = append(texts, audit.Text{Name: file, In: f})
		all = append(all, lines(t, file)...)
	}
	report, err = audit.Verify(texts, nil)
	if err != nil || len(report.Findings) > 0 {
		t.Errorf("%v %+v", err, report)
	}
	return all, report
}

// A flood is what one who calls sends again and again: bodies of requests.
type flood struct {
	name    string
	headers []string
	body    func(i int) string
	times   int
}

func floods() (all []flood) {
	call := func(method, params string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":` + params + `}`
	}
	long := strings.Repeat("y", 20_000)
	kinds := []flood{
		{name: "denied, long params", body: func(int) string {
			return call("zz", `{"a":"`+long+`"}`)
		}, times: 300},
		{name: "denied, each another", body: func(i int) string {
			return call(fmt.Sprintf("zz%d%s", i, long), `{"a":"`+long+`"}`)
		}, times: 300},
		{name: "limited", body: func(int) string { return call("math/add", `{}`) }, times: 300},
		{name: "malformed params", body: func(i int) string {
			return call("who", fmt.Sprintf(`{"a":%d,"a":"%s"}`, i, long))
		}, times: 200},
		{name: "no JSON", body: func(int) string { return `{"jsonrpc":` + long }, times: 100},
		{name: "batches", body: func(i int) string {
			parts := make([]string, 100)
			for j := range parts {
				parts[j] = call(fmt.Sprintf("no%d/%d", i, j), `{}`)
			}
			return "[" + strings.Join(parts, ",") + "]"
		}, times: 20},
	}
	for who, headers := range map[string][]string{
		"named": {bearer(secondKey)}, "anonymous": nil, "unauthenticated": {bearer("wrong")},
	} {
		for _, f := range kinds {
			f.name, f.headers = who+"/"+f.name, headers
			all = append(all, f)
		}
	}
	return all
}

// Whatever one who calls sends, an earlier line of another owner is still there, the chain is
// whole, and another owner still gets answers.
func TestFloodsEraseNothing(t *testing.T) {
	t.Parallel()
	race.Skip(t, "TestFullStoreRefuses and TestManyAtOnce have the same log")
	for _, onFull := range []string{"refuse", "rotate"} {
		for _, f := range floods() {
			t.Run(onFull+"/"+f.name, func(t *testing.T) {
				name := t.TempDir() + "/audit.jsonl"
				c := &guard.Config{
					Anonymous: true,
					Keys:      []guard.Key{keyOf("ci", goodKey), keyOf("guest", secondKey, "guest")},
					Allow: []guard.Rule{
						{Principals: []string{"ci"}, Calls: []string{"*"}},
						{Roles: []string{"guest", "anonymous"}, Calls: []string{"math/add"}},
					},
				}
				c.Limits.Rates = []guard.Rate{
					{Limit: 5, Every: 24 * time.Hour, Roles: []string{"guest", "anonymous"}},
				}
				c.Audit.File, c.Audit.MaxSize, c.Audit.Keep, c.Audit.Params, c.Audit.OnFull = name, 3_000_000,
					2, true, onFull
				s := newSite(t, c, nil)
				s.call("who", `{"evidence":1}`, asCI).wants(t, "service ci by key")
				for i := range f.times {
					r := s.request("x", "", f.headers...)
					body := f.body(i)
					r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
					s.do(r)
				}
				s.call("who", `{"evidence":2}`, asCI).wants(t, "service ci by key")
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				all, report := verify(t, name)
				evidence := 0
				for _, d := range all {
					if d.Principal == "ci" && d.Decision == "allowed" && d.Params["evidence"] != nil {
						evidence++
					}
				}
				if evidence != 2 || report.Open != 0 {
					t.Errorf("%d lines of evidence, %d calls without outcome, %d lines", evidence, report.Open,
						len(all))
				}
			})
		}
	}
}

// What is refused again and again is counted, and nothing of the count is lost.
func TestRefusalsAreFolded(t *testing.T) {
	name := t.TempDir() + "/audit.jsonl"
	clock := newClock()
	c := &guard.Config{
		Keys:  []guard.Key{keyOf("ci", goodKey)},
		Allow: []guard.Rule{{Calls: []string{"who"}}},
	}
	c.Audit.File = name
	s := newSite(t, c, &guard.Options{Now: clock.Now})
	for range 500 {
		s.call("who", "").wants(t, unauthenticated)
	}
	for range 413 {
		s.call("admin/stop", "", asCI).wants(t, denied)
	}
	for range 3 { // what is allowed is never folded
		s.call("who", "", asCI).wants(t, "service ci by key")
	}
	s.call("math/add", "", asCI).wants(t, denied)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	all, _ := verify(t, name)
	all = decisions(all)
	want := []decision{
		{Decision: "refused", Call: "http POST /rpc"},
		{Decision: "denied", Call: "admin/stop"},
		{Decision: "allowed", Call: "who"},
		{Decision: "allowed", Call: "who"},
		{Decision: "allowed", Call: "who"},
		{Decision: "denied", Call: "admin/stop", Repeats: 412, Of: 3},
		{Decision: "denied", Call: "math/add"},
		{Decision: "refused", Call: "http POST /rpc", Repeats: 499, Of: 2},
	}
	if len(all) != len(want) {
		t.Fatalf("%+v", all)
	}
	for i, w := range want {
		if got := all[i]; got.Decision != w.Decision || got.Call != w.Call || got.Repeats != w.Repeats ||
			got.Of != w.Of {
			t.Errorf("line %d: %+v, want %+v", i, got, w)
		}
	}
}

// A refusal is a call: it has its own rate, for each owner, which does not count what is allowed.
func TestRefusalsHaveARate(t *testing.T) {
	name := t.TempDir() + "/audit.jsonl"
	c := &guard.Config{
		Keys:  []guard.Key{keyOf("ci", goodKey), keyOf("guest", secondKey)},
		Allow: []guard.Rule{{Calls: []string{"who"}}},
	}
	c.Audit.File = name
	c.Limits.Refusals.Limit, c.Limits.Refusals.Every, c.Limits.Refusals.Burst = 1, time.Hour, 3
	s := newSite(t, c, nil)
	for range 3 {
		s.call("admin/stop", "", asCI).wants(t, denied)
	}
	for i := range 10 {
		got := s.call(fmt.Sprint("x/", i), "", asCI)
		got.wants(t, limited)
		if ms, _ := got.data["retryAfterMs"].(float64); ms <= 0 {
			t.Errorf("%+v", got.data)
		}
	}
	s.call("who", "", asCI).wants(t, "service ci by key")
	s.call("admin/stop", "", bearer(secondKey)).wants(t, denied)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	all, _ := verify(t, name)
	refused, counted := 0, 0
	for _, d := range all {
		if d.Decision == "denied" && d.Of == 0 {
			refused++
		}
		counted += d.Repeats + d.Unwritten
	}
	if refused != 2 || counted != 12 {
		t.Errorf("%d lines and %d counted: %+v", refused, counted, all)
	}
}

// An audit that takes no more refuses calls, and says so to those who are refused, until the
// configuration lets it delete. What waits to be written counts, so the answer does not depend on
// how fast that is.
func TestFullStoreRefuses(t *testing.T) {
	name := t.TempDir() + "/audit.jsonl"
	c := &guard.Config{Anonymous: true}
	c.Audit.File, c.Audit.MaxSize, c.Audit.Keep = name, 5000, 1
	s := newSite(t, c, nil)
	allowed := 0
	for s.call("who", "").code != unavailable {
		if allowed++; allowed > 100 {
			t.Fatal("the store is never full")
		}
	}
	s.call("who", "").wants(t, unavailable)
	next := *c
	next.Audit.OnFull = "rotate"
	reload(t, s.Guard, &next)
	if got := s.call("who", ""); got.code == unavailable {
		t.Errorf("the oldest file may be deleted: %+v", got)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	verify(t, name)
}

// A caller that fills the audit with calls it may make is refused, and another one calls on.
func TestAllowedCallsLeaveRoomForOthers(t *testing.T) {
	name := t.TempDir() + "/audit.jsonl"
	c := &guard.Config{
		Keys:  []guard.Key{keyOf("ci", goodKey), keyOf("guest", secondKey)},
		Allow: []guard.Rule{{Calls: []string{"who"}}},
	}
	c.Audit.File, c.Audit.MaxSize, c.Audit.Keep = name, 50_000, 1
	s := newSite(t, c, nil)
	allowed := 0
	for s.call("who", "", asCI).code != unavailable {
		if allowed++; allowed > 1000 {
			t.Fatal("the store is never full")
		}
	}
	s.call("who", "", bearer(secondKey)).wants(t, "service guest by key")
	s.call("who", "", asCI).wants(t, unavailable)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	verify(t, name)
}
