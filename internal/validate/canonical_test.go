package validate

import "testing"

func TestAppendCanonical(t *testing.T) {
	seen := map[string]string{}
	for _, equal := range [][]string{
		{`0`, `-0`, `0.00`, `0e9`},
		{`1`, `1.0`, `100e-2`, `0.001e3`},
		{`-1`, `-10e-1`},
		{`10`, `1E+1`},
		{`0.5`, `5e-1`},
		{`9007199254740992`},
		{`9007199254740993`},
		{`"a"`, `"\u0061"`},
		{`"/"`, `"\/"`},
		{`{"a":1,"b":[1,2]}`, `{ "b": [1.0, 2], "a": 1 }`, `{"\u0061":1,"b":[1,2e0]}`},
		{`{"a":1,"b":[2,1]}`},
		{`{"a":1,"a":2}`},
		{`{"a":2,"a":1}`},
		{`{}`},
		{`[]`},
		{`[[]]`},
		{`null`},
		{`true`},
		{`""`},
	} {
		want := string(AppendCanonical(nil, []byte(equal[0])))
		for _, raw := range equal {
			if got := string(AppendCanonical(nil, []byte(raw))); got != want {
				t.Errorf("%s: %q, but %s is %q", raw, got, equal[0], want)
			}
		}
		if other, taken := seen[want]; taken {
			t.Errorf("%s and %s are both %q", equal[0], other, want)
		}
		seen[want] = equal[0]
	}
}
