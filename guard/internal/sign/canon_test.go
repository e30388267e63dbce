package sign

import (
	"bytes"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/scan"
)

func canonicalOf(raw []byte) (string, *Error) {
	w := getWork()
	defer w.put()
	if err := w.read(raw, elsewhere); err != nil {
		return "", err
	}
	return string(w.canonical(nil, 0)), nil
}

// The examples of RFC 8785 §3.2.2, §3.2.3 and appendix B, but for numbers that lose digits.
func TestCanonical(t *testing.T) {
	for raw, want := range map[string]string{
		`{"numbers": [333333333.3333333, 1E30, 4.50, 2e-3, 0.000000000000000000000000001], "string": ` +
			`"\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/", "literals": [null, ` +
			`true, false]}`: `{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,` +
			`1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}`,
		`{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh",` +
			`"1":"One","\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","\u00f6":"Latin Small ` +
			`Letter O With Diaeresis"}`: `{"\r":"Carriage Return","1":"One","` + "\u0080" +
			`":"Control","ö":"Latin Small Letter O With Diaeresis","€":"Euro Sign","😀":"Emoji: ` +
			`Grinning Face","` + "\ufb33" + `":"Hebrew Letter Dalet With Dagesh"}`,
		`0`: `0`, `-0`: `0`, `0.0e7`: `0`, `-0.0`: `0`, `1.0`: `1`, `-1E0`: `-1`, `5e-324`: `5e-324`,
		`-5e-324`:                `-5e-324`,
		`1.7976931348623157e308`: `1.7976931348623157e+308`, `9007199254740992`: `9007199254740992`,
		`-9007199254740992`:     `-9007199254740992`,
		`295147905179352830000`: `295147905179352830000`, `9.999999999999997e22`: `9.999999999999997e+22`,
		`1e23`: `1e+23`, `1e21`: `1e+21`,
		`1e-6`: `0.000001`, `1e-7`: `1e-7`, `1.5e-10`: `1.5e-10`,
		`333333333.33333325`:        `333333333.33333325`,
		`0.0000033333333333333333`:  `0.0000033333333333333333`,
		`1000000000000000000000000`: `1e+24`, `123456789012345`: `123456789012345`,
		`1424953923781206.2`:                         `1424953923781206.2`,
		` [ 1 , 2,3 ,[ ] ,[4,5] , 6,7,"a\/b" , 8 ] `: `[1,2,3,[],[4,5],6,7,"a/b",8]`,
		`[1,2,[3,{"b":1,"a":2}],4,5]`:                `[1,2,[3,{"a":2,"b":1}],4,5]`,
		`{"b":[1, 2],"a":{"d":{},"c":[]}}`:           `{"a":{"c":[],"d":{}},"b":[1,2]}`,
		`{"aa":1,"a":2,"":3,"ab":4}`:                 `{"":3,"a":2,"aa":1,"ab":4}`,
		`{"a\"":1,"a!":2,"a#":3}`:                    `{"a!":2,"a\"":1,"a#":3}`,
		`{"\u0061":1}`:                               `{"a":1}`, `{"a" :1}`: `{"a":1}`,
		`{"a": 1}`: `{"a":1}`, `{"a":1 }`: `{"a":1}`, `{ }`: `{}`, `[ ]`: `[]`,
		"\"\x7f\u2028<>&\"":          "\"\x7f\u2028<>&\"",
		`"\u2028\u003c\u007F\uFFFD"`: "\"\u2028<\x7f\uFFFD\"",
	} {
		got, err := canonicalOf([]byte(raw))
		if err != nil || got != want {
			t.Errorf("%s:\n%s, want\n%s (%v)", raw, got, want, err)
		}
		if slow, ok := slowCanonical([]byte(raw)); !ok || slow != want {
			t.Errorf("the slow one says %s of %s (%v)", slow, raw, ok)
		}
	}
}

func TestCanonicalRefuses(t *testing.T) {
	deep := strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1)
	for _, raw := range []string{
		`9007199254740993`, `-9007199254740993`, `1e400`, `-1e400`, `1e-400`, `0.10000000000000001`,
		`0.1000000000000000055511151231257827`, `333333333.33333329`,
		`1e99999999999999999999`, `1e-99999999999999999999`, `123456789012345678901`,
		`1` + strings.Repeat("0", 400), `1.0000000000000000000001`,
		`"\ud83d"`, `"\ude00"`, `"\ud83d\ud83d"`, `"\ud83dx"`, `"\ud83d\u0041"`, `"\ude00\ud83d"`,
		`"\uD800\uD800\uDC00"`, `"\ud83d\n"`, `{"\udfff":1}`,
		`{"a":1,"a":1}`, `{"a":1,"\u0061":1}`, `{"b":1,"a":1,"c":1,"b":1}`, `[{"a":{"b":1,"b":1}}]`,
		`{"":1,"":1}`,
		``, ` `, `{`, `[`, `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `{"a":1,}`, `[1,]`, `[1`, `[1 2]`,
		`{"a" 1}`, `{a:1}`, `{"a":1 "b":1}`, `nul`, `01`, `1.`, `"a`, "\"\xff\"", "\"\n\"", `1 2`,
		"\ufeff1",
		deep,
	} {
		got, err := canonicalOf([]byte(raw))
		if err == nil {
			t.Errorf("%s is %s", raw, got)
		} else if err.Reason != Malformed || len(err.Error()) > 300 {
			t.Errorf("%s: %v", raw, err)
		}
	}
	for _, raw := range []string{`9007199254740993`, `1e400`} {
		if _, err := canonicalOf([]byte(raw)); !strings.Contains(err.Error(), raw) ||
			!strings.Contains(err.Error(), "double") {
			t.Errorf("%s: %v", raw, err)
		}
	}
	if _, err := canonicalOf([]byte(deep[1 : len(deep)-1])); err != nil {
		t.Error(err)
	}
}

// Millions of values that are canonical, but for a space at the end, cost one node; those that
// are not are bounded.
func TestCanonicalIsBounded(t *testing.T) {
	many := "[" + strings.Repeat("1,", maxNodes) + "1 ]"
	if got, err := canonicalOf([]byte(many)); err != nil || got != strings.Replace(many, " ", "", 1) {
		t.Error(err)
	}
	if _, err := canonicalOf([]byte("[" + strings.Repeat("1 ,", maxNodes) + "1 ]")); err == nil {
		t.Error("taken")
	}
	// Nothing is read again for each level it is in.
	nested := strings.Repeat(`{"b":1,"a":`, maxDepth) + `"` + strings.Repeat("x", 1<<20) + `"` +
		strings.Repeat("}", maxDepth)
	if got, err := canonicalOf([]byte(nested)); err != nil || len(got) != len(nested) {
		t.Error(err)
	}
}

// slowCanonical does what canon does in another way: by jsonv2, big numbers, maps and UTF-16.
func slowCanonical(raw []byte) (string, bool) {
	var parts any
	if _, f := scan.Text(raw, maxDepth); f != scan.OK || jsonv2.Unmarshal(raw, &parts) != nil {
		return "", false
	}
	switch v := parts.(type) {
	case nil:
		return "null", true
	case bool:
		return strconv.FormatBool(v), true
	case float64:
		return slowNumber(strings.TrimSpace(string(raw)), v)
	case string:
		return slowString(v), true
	case []any:
		var out []string
		for value := range scan.Elements(raw) {
			s, ok := slowCanonical(value)
			if !ok {
				return "", false
			}
			out = append(out, s)
		}
		return "[" + strings.Join(out, ",") + "]", true
	case map[string]any:
		members := map[string]string{}
		for key, value := range scan.Members(raw) {
			s, ok := slowCanonical(value)
			if !ok {
				return "", false
			}
			members[string(key)] = s
		}
		var names, out []string
		for name := range members {
			names = append(names, name)
		}
		slices.SortFunc(names, func(a, b string) int {
			return slices.Compare(utf16.Encode([]rune(a)), utf16.Encode([]rune(b)))
		})
		for _, name := range names {
			out = append(out, slowString(name)+":"+members[name])
		}
		return "{" + strings.Join(out, ",") + "}", true
	}
	return "", false
}

func slowString(s string) string {
	var out strings.Builder
	out.WriteString(`"`)
	for _, r := range s {
		switch {
		case strings.ContainsRune("\b\t\n\f\r", r):
			out.WriteString(map[rune]string{'\b': `\b`, '\t': `\t`, '\n': `\n`, '\f': `\f`, '\r': `\r`}[r])
		case r == '"' || r == '\\':
			out.WriteString(`\` + string(r))
		case r < ' ':
			fmt.Fprintf(&out, `\u%04x`, r)
		default:
			out.WriteString(string(r))
		}
	}
	return out.String() + `"`
}

// slowNumber is the algorithm of ECMAScript (Number::toString) over the digits of the shortest
// form.
func slowNumber(raw string, f float64) (string, bool) {
	mantissa, exponent, _ := strings.Cut(strconv.FormatFloat(f, 'e', -1, 64), "e")
	sign := ""
	if strings.HasPrefix(mantissa, "-") {
		sign, mantissa = "-", mantissa[1:]
	}
	digits := strings.Replace(mantissa, ".", "", 1)
	k := len(digits)
	e, _ := strconv.Atoi(exponent)
	n := e + 1
	var out string
	switch {
	case f == 0:
		sign, out = "", "0"
	case k <= n && n <= 21:
		out = digits + strings.Repeat("0", n-k)
	case 0 < n && n <= 21:
		out = digits[:n] + "." + digits[n:]
	case -6 < n && n <= 0:
		out = "0." + strings.Repeat("0", -n) + digits
	default:
		out = digits[:1]
		if k > 1 {
			out += "." + digits[1:]
		}
		out += "e" + fmt.Sprintf("%+d", n-1)
	}
	if i := strings.IndexAny(raw, "eE"); i >= 0 && len(raw)-i > 6 {
		return "", false // too much for package big; the fuzz target does not go there
	}
	was, ok1 := new(big.Rat).SetString(raw)
	is, ok2 := new(big.Rat).SetString(sign + out)
	return sign + out, ok1 && ok2 && was.Cmp(is) == 0
}

func FuzzCanonical(f *testing.F) {
	for _, v := range readVectors(f).Vectors {
		f.Add([]byte(v.Params))
	}
	for _, s := range []string{
		`[1.0,-0,1e21,9007199254740993]`, `{"😀":1,"\ufb33":2}`,
		`"\ud83d\ude00\/"`, `[1, 2,3 ,{"b":{},"a":[ ]}]`, `{"a":1,"\u0061":2}`, `1e400`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		for i := range raw { // exponents that package big would compute for ever
			if raw[i]|0x20 == 'e' && i+6 < len(raw) &&
				len(bytes.TrimLeft(raw[i+1:i+6], "+-0123456789")) == 0 {
				return
			}
		}
		got, err := canonicalOf(raw)
		slow, ok := slowCanonical(raw)
		if loneEscape(raw) {
			ok = ok && err == nil // jsonv2 may take them for U+FFFD
		}
		if (err == nil) != ok || ok && got != slow {
			t.Fatalf("%q:\n%q (%v), want\n%q (%v)", raw, got, err, slow, ok)
		}
		if err == nil {
			if again, err := canonicalOf([]byte(got)); err != nil || again != got {
				t.Fatalf("%q is %q the second time (%v)", got, again, err)
			}
		}
	})
}

// loneEscape reports whether there is an escaped surrogate at all.
func loneEscape(raw []byte) bool {
	return bytes.Contains(bytes.ToLower(raw), []byte(`\ud`))
}

func FuzzVerifyMessage(f *testing.F) {
	for _, v := range readVectors(f).Vectors {
		f.Add([]byte(v.Params))
	}
	f.Add([]byte(`{"_META":{"FARCALL.dev/\u017Fignature":{}}}`))
	keys := testKeys(f)
	f.Fuzz(func(t *testing.T, params []byte) {
		has := HasSignature(params)
		s, err := VerifyMessage("fuzz", params, keys, "fuzz")
		if err == nil {
			t.Fatalf("%q: %+v", params, s) // nothing was signed for this method
		}
		var e *Error
		errors.As(err, &e)
		if has && e.Reason == Missing || !has && e.Reason != Missing && e.Reason != Malformed {
			t.Fatalf("%q: HasSignature is %v, but %v", params, has, err)
		}
		out, err := Message("fuzz", params, "ci", testSecret, testTime, testNonce, "fuzz")
		if err != nil {
			return
		}
		if has {
			t.Fatalf("%q was signed, and is so again", params)
		}
		if _, err := VerifyMessage("fuzz", out, keys, "fuzz"); err != nil || !HasSignature(out) {
			t.Fatalf("%q: %v", out, err)
		}
	})
}
