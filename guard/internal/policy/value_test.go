package policy

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cedar-policy/cedar-go/types"
)

func TestNumbers(t *testing.T) {
	for raw, want := range map[string]string{
		"0": "0", "-0": "0", "0.0": "0", "0e999999999999": "0", "1": "1", "-1": "-1", "1.0": "1",
		"1e3": "1000", "1E+3": "1000", "1000e-3": "1", "12.50e1": "125",
		"9223372036854775807": "9223372036854775807", "-9223372036854775808": "-9223372036854775808",
		"9223372036854775808": `"9223372036854775808"`, "1e19": `"1e19"`, "1e400": `"1e400"`,
		"1e999999999999": `"1e999999999999"`,
		"0.5":            `decimal("0.5")`, "-2.25": `decimal("-2.25")`, "0.0001": `decimal("0.0001")`,
		"0.00001": `"0.00001"`, "25e-4": `decimal("0.0025")`,
		"922337203685477.5807": `decimal("922337203685477.5807")`,
		"922337203685477.5808": `"922337203685477.5808"`, "0.30000000000000004": `"0.30000000000000004"`,
	} {
		if got := string(number(raw).MarshalCedar()); got != want {
			t.Errorf("number(%s) = %s, want %s", raw, got, want)
		}
	}
}

func TestArguments(t *testing.T) {
	deep := func(n int) string { return strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n) }
	for _, test := range []struct {
		json string
		err  error
	}{
		{"", nil},
		{" ", nil},
		{"null", nil},
		{`{"__proto__":{"constructor":1},"":2}`, nil},
		{`[1,{"a":[[]]}]`, nil},
		{`{"a":"\ud800"}`, nil},
		{deep(maxDepth), nil},
		{deep(maxDepth + 1), errDeep},
		{`{"a":1,"a":1}`, errDuplicate},
		{`{"a":1,"\u0061":2}`, errDuplicate},
		{`{"a":{"b":1,"b":2}}`, errDuplicate},
		{`{"a":[` + strings.Repeat("1,", maxArray-1) + `1]}`, nil},
		{`{"a":[` + strings.Repeat("1,", maxArray) + `1]}`, errLarge},
		{`[` + strings.Repeat(`[`+strings.Repeat("1,", 98)+"1],", 200) + `1]`, errLarge},
		{`"` + strings.Repeat("x", maxArguments) + `"`, errLarge},
		{`{"a":1`, errInvalid},
		{"{\"a\":\"\xff\"}", errInvalid},
	} {
		if _, err := arguments([]byte(test.json), nil); !errors.Is(err, test.err) {
			t.Errorf("%.40s: %v, want %v", test.json, err, test.err)
		}
	}
	// What cannot be decided is denied, only by the policies that it may concern.
	q := &Query{Method: "m", Arguments: []byte(`{"a":1,"a":2}`)}
	const all = `permit (principal, action, resource);`
	if d := compile(t, nil, all).Decide(q); !d.Allowed {
		t.Error(d)
	}
	d := compile(t, nil,
		all+`forbid (principal, action, resource) when { context.arguments has b };`).Decide(q)
	if d.Allowed || !strings.Contains(d.Reason, "given twice") {
		t.Error(d)
	}
	wide := make([]any, maxArray+1)
	q.Subject = &Subject{Claims: map[string]any{"a": wide}}
	if d := compile(t, nil,
		all+`forbid (principal, action, resource) when { principal.claims has b };`).Decide(
		q); d.Allowed {
		t.Error(d)
	}
	var nested any = "x"
	for range 100 {
		nested = []any{nested}
	}
	if _, err := claims(map[string]any{"a": nested}); !errors.Is(err, errDeep) {
		t.Error(err)
	}
}

// Elements that were chosen to fall on each other cost no more than the bound on arrays lets them.
func TestSetsAreBounded(t *testing.T) {
	var b strings.Builder
	b.WriteString("[")
	for i := range maxArray - 1 {
		fmt.Fprintf(&b, `["%d"],`, i)
	}
	b.WriteString("1]")
	r, err := arguments([]byte(b.String()), nil)
	if err != nil || r.Len() != maxArray {
		t.Error(r.Len(), err)
	}
}

func FuzzArguments(f *testing.F) {
	for _, s := range []string{
		`{"a":[1,2.5,"x",null,true,{"b":{}}]}`, `{"__proto__":1,"__proto__":2}`,
		`[[[[[]]]]]`, `{"n":1e999999}`, `{"a":"\ud83d"}`, "{", `-0.00e-99999999999999999999`,
	} {
		f.Add([]byte(s))
	}
	s := compile(f, []Rule{{Roles: []string{"x"}, Calls: []string{"*"}}},
		`permit (principal, action, resource) when { context.arguments has a && context.arguments.a == "yes" };
forbid (principal, action, resource) when { context.arguments has b && context.arguments.b > 3 };`)
	f.Fuzz(func(t *testing.T, b []byte) {
		q := &Query{
			Method: "tools/call", Name: string(b), Arguments: b, Annotations: b,
			Remote: string(b),
		}
		d := s.Decide(q)
		e := s.Explain(q)
		if d.Allowed != e.Allowed || d.Reason == "" || strings.ContainsAny(e.Reason, "\n\r\x1b") {
			t.Errorf("%+v, %+v", d, e)
		}
		r, err := arguments(b, nil)
		if again, err2 := arguments(b, nil); !again.Equal(r) || (err == nil) != (err2 == nil) {
			t.Error("twice the same is not the same")
		}
		if annotations(b).Len() != 4 {
			t.Error("annotations are not four")
		}
		if v, ok := r.Get("a"); d.Allowed && (!ok || !v.Equal(types.String("yes"))) {
			t.Errorf("allowed with %v", v)
		}
	})
}
