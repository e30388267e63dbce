package audit

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestRedact(t *testing.T) {
	t.Parallel()
	tests := []struct{ in, want string }{
		{`{"user":"a","password":"b"}`, `{"user":"a","password":"[redacted]"}`},
		{
			`{"p\u0061ssword":"b","API-Key":{"a":[1]},"X_Api_Key":1,"clientSecret":null}`,
			`{"password":"[redacted]","API-Key":"[redacted]","X_Api_Key":"[redacted]",` +
				`"clientSecret":"[redacted]"}`,
		},
		{
			` [ { "a" : { "refresh_token" : [ "x" ] } , "pin" : 1234 , "spin" : 1 } ] `,
			`[{"a":{"refresh_token":"[redacted]"},"pin":"[redacted]","spin":1}]`,
		},
		{
			`{"pa\u017fsword":"x","to\u212aen":"y"}`,
			"{\"pa\u017fsword\":\"[redacted]\",\"to\u212aen\":\"[redacted]\"}",
		},
		{
			`{"h":"Bearer xyz, next","i":"bEARER   a.b=="}`,
			`{"h":"Bearer [redacted], next","i":"bEARER   [redacted]"}`,
		},
		{`{"h":"\u0042earer xyz"}`, `{"h":"Bearer [redacted]"}`},
		{
			`["Basic YTpi","basic understanding","a fk_ci_0123456789abcdef."]`,
			`["Basic [redacted]","basic understanding","a [redacted]."]`,
		},
		{`["eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIn0.c2ln","eyJ.x"]`, `["[redacted]","eyJ.x"]`},
		{
			`["https://u:p@h/x?a=1&access_token=tok&b=2#f","https://h/@x"]`,
			`["https://[redacted]@h/x?a=1&access_token=[redacted]&b=2#f","https://h/@x"]`,
		},
		{
			`["mysql --password hunter2 -e","run --token=abc x","grant_type=x&client%5Fsecret=y&z=1"]`,
			`["mysql --password [redacted] -e","run --token=[redacted] x",` +
				`"grant_type=x&client%5Fsecret=[redacted]&z=1"]`,
		},
		{
			`["{\"password\":\"x y\",\"a\":1}","{\\\"password\\\": \\\"x\\\"}","X-Api-Key: abc def\nA: b"]`,
			`["{\"password\":\"[redacted]\",\"a\":1}","{\\\"password\\\": \\\"[redacted]\\\"}",` +
				`"X-Api-Key: [redacted]\u000aA: b"]`,
		},
		{`["-----BEGIN RSA PRIVATE KEY-----\nabc"]`, `["[redacted]"]`},
		{
			`{"arguments":{"body":"x","other":{"body":"y"}},"body":"z"}`,
			`{"arguments":{"body":"[redacted]","other":{"body":"y"}},"body":"z"}`,
		},
		{
			`{"a":[{"card":{"number":1,"x":2}}],"card":{"num-ber":3},"number":4}`,
			`{"a":[{"card":{"number":"[redacted]","x":2}}],"card":{"num-ber":"[redacted]"},"number":4}`,
		},
		{`{"ssn":1,"SSN2":2,"a.b":3}`, `{"ssn":"[redacted]","SSN2":"[redacted]","a.b":"[redacted]"}`},
		{`{}`, `{}`},
		{`[]`, `[]`},
		{`"x"`, `"x"`},
		{`-1.5e3`, `-1.5e3`},
		{"[" + strings.Repeat("1", 100) + "]", `["[a number of 100 digits]"]`},
		{
			strings.Repeat("[", 66) + strings.Repeat("]", 66),
			strings.Repeat("[", 64) + `"[too deep]"` + strings.Repeat("]", 64),
		},
		{`{"a":1`, notJSON},
		{`{"a":1} x`, notJSON},
		{`{"a" 1}`, notJSON},
		{`{"a":1,}`, notJSON},
		{`[1,]`, notJSON},
		{`{1}`, notJSON},
		{"[\"\xff\"]", notJSON},
		{``, notJSON},
	}
	for _, test := range tests {
		got := Redact([]byte(test.in), []string{"arguments.body", "*.card.number", "ssn*", "a.b", ""})
		if string(got) != test.want || !json.Valid(got) {
			t.Errorf("%s\ngot  %s\nwant %s", test.in, got, test.want)
		}
	}
}

func TestRedactBounded(t *testing.T) {
	t.Parallel()
	for name, in := range map[string]string{
		"string":  `{"a":"` + strings.Repeat("x", 1<<20) + `"}`,
		"escapes": `{"a":"` + strings.Repeat(`\u0001`, 1<<16) + `"}`,
		"members": `{` + strings.Repeat(`"a":{"b":[1,2]},`, 1<<14) + `"c":1}`,
		"array":   `[` + strings.Repeat(`[["x"]],`, 1<<14) + `1]`,
		"names":   `{"` + strings.Repeat("n", 1<<20) + `":1}`,
		"tokens":  `["` + strings.Repeat("eyJ", 1<<18) + `!"]`,
		"schemes": `["` + strings.Repeat("Bearer basic a:", 1<<16) + `!"]`,
		"deep":    strings.Repeat(`{"a":[`, 1<<14) + strings.Repeat(`]}`, 1<<14),
	} {
		got := Redact([]byte(in), nil)
		if len(got) > maxEntry+300 || !json.Valid(got) {
			t.Errorf("%s: %d bytes: %.200s", name, len(got), got)
		}
	}
	long := `["` + strings.Repeat("x", maxEntry-100) + ` fk_` + strings.Repeat("S", 200) + `"]`
	if got := Redact([]byte(long), nil); strings.Contains(string(got), "SSS") {
		t.Error("the beginning of a key that was cut off is there")
	}
}

// In our own words a secret is masked, and other text is not.
func TestProse(t *testing.T) {
	t.Parallel()
	r := compile(nil)
	for in, want := range map[string]string{
		"invalid token: it has expired; a Bearer token is expected": "invalid token: it has expired; a " +
			"Bearer token is expected",
		"refused Bearer abc123, fk_ci_0123456789": "refused Bearer [redacted], [redacted]",
		`resources/read https://a:b@h/?token=c#d`: `resources/read https://[redacted]@h/` +
			`?token=[redacted]`,
		`{"token": "c", "token":d`:              `{"token": "[redacted]", "token":[redacted]`,
		"Authorization: Basic YWxpY2U6aHVudGVy": "Authorization: Basic [redacted]",
	} {
		if got := string(r.mask([]byte(in), true)); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

func FuzzRedact(f *testing.F) {
	for _, in := range []string{
		`{"a":{"b":[1,"x",null]},"token":"t"}`, `["Bearer x","https://u:p@h","a=b&secret=c"]`,
		`{"a":"\u2028\"","a":1}`, `[[[[`, `{"x":"eyJa.b.c"}`,
	} {
		f.Add([]byte(in), "password")
	}
	f.Fuzz(func(t *testing.T, in []byte, name string) {
		const hidden = "Qz7hiddenQz7value"
		got := Redact(in, []string{name})
		if !json.Valid(got) || len(got) > maxEntry+1024 {
			t.Fatalf("%q gave %q", in, got)
		}
		if json.Valid(in) != (string(got) != notJSON) && string(in) != notJSON && len(in) < 1000 &&
			!strings.Contains(string(got), "too deep") && utf8Valid(in) {
			t.Errorf("%q gave %q", in, got)
		}
		if !json.Valid(in) || strings.Contains(string(in), "Qz7") {
			return
		}
		quoted, _ := json.Marshal(name)
		for _, text := range []string{
			`{"password":"` + hidden + `","x":` + string(in) + `}`,
			`{"x":` + string(in) + `,"y":[{"A_Pi-kEY":["` + hidden + `"]}]}`,
			`{"x":` + string(in) + `,"y":"Bearer ` + hidden + `"}`,
			`[` + string(in) + `,"https://h/?access_token=` + hidden + `","https://u:` + hidden + `@h"]`,
			`{` + string(quoted) + `:{"a":"` + hidden + `"}}`,
		} {
			if i := len(normalize(nil, name)); i == 0 || strings.ContainsAny(name, "*?\ufffd\\") ||
				!utf8Valid([]byte(name)) {
				if strings.HasPrefix(text, `{`+string(quoted)+`:{"a"`) {
					continue
				}
			}
			got := Redact([]byte(text), []string{name})
			if strings.Contains(string(got), hidden) || !json.Valid(got) {
				t.Fatalf("%q gave %q", text, got)
			}
		}
	})
}

func utf8Valid(b []byte) bool { return strings.ToValidUTF8(string(b), "") == string(b) }

func BenchmarkRedact(b *testing.B) {
	in := []byte(`{"name":"search","arguments":{"q":"some words","page":1,"repo":"octo/cat",` +
		`"password":"hunter2","url":"https://example.com/a?b=c"}}`)
	r := compile([]string{"arguments.body"})
	var dst []byte
	var w walker
	b.ReportAllocs()
	for b.Loop() {
		dst = w.redact(dst[:0], in, r, maxEntry)
	}
}
