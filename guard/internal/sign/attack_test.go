package sign

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

const testBody = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add"}}`

// request is one as it comes, signed.
func request(tb testing.TB, body string) *http.Request {
	tb.Helper()
	r := httptest.NewRequest(http.MethodPost, "/mcp?a=1", strings.NewReader(body))
	r.Host = "Example.com:80"
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Mcp-Method", "tools/call")
	r.Header.Set("Mcp-Name", "add")
	if err := HTTP(r, []byte(body), "ci", testSecret, testTime, testNonce); err != nil {
		tb.Fatal(err)
	}
	return r
}

func TestAttackMessageOverOtherBytes(t *testing.T) {
	keys := testKeys(t)
	params := signed(t, "pay", `{"to":"alice","amount":10,"_meta":{"progressToken":1}}`)
	if _, err := VerifyMessage("pay", params, keys, ""); err != nil {
		t.Fatal(err)
	}
	for _, change := range [][2]string{
		{`"alice"`, `"mallory"`},
		{`10`, `11`},
		{`"to"`, `"To"`},
		{`"progressToken":1`, `"progressToken":2`},
		{`"progressToken":1`, `"progressToken":1,"x":1`},
		{`,"amount":10`, ``},
		{`"to":"alice"`, `"to":"alice","admin":true`},
		{`"alice"`, `["alice"]`},
		{`10`, `"10"`},
		{`1700000000`, `1700000001`},
	} {
		changed := strings.Replace(string(params), change[0], change[1], 1)
		_, err := VerifyMessage("pay", []byte(changed), keys, "")
		wantReason(t, err, Mismatch)
	}
	_, err := VerifyMessage("refund", params, keys, "")
	wantReason(t, err, Mismatch)
	_, err = VerifyMessage("pay", params, keys, "another server")
	wantReason(t, err, Mismatch)
}

// No line of what is signed can be moved into its neighbour.
func TestAttackMessageLinesShifted(t *testing.T) {
	keys := testKeys(t)
	out, err := Message("b", nil, "ci", testSecret, testTime, testNonce, "a")
	if err != nil {
		t.Fatal(err)
	}
	for _, try := range [][2]string{{"", "a\nb"}, {"a\nb", ""}, {"ab", ""}, {"", "ab"}, {"b", "a"}} {
		if _, err := VerifyMessage(try[1], out, keys, try[0]); err == nil {
			t.Errorf("audience %q, method %q: taken", try[0], try[1])
		}
	}
}

func TestAttackMessageAlgorithmSwapped(t *testing.T) {
	keys := testKeys(t)
	public := []byte(keys["ed"].Public)
	// HMAC with the public key for a secret
	forged, err := Message("m", nil, "ed", public, testTime, testNonce, "")
	if err != nil {
		t.Fatal(err)
	}
	_, err = VerifyMessage("m", forged, keys, "")
	wantReason(t, err, Algorithm)
	for _, alg := range []string{"none", "", "HMAC-SHA256", "hs256", "hmac-sha256 ", "ed25519"} {
		params := strings.Replace(string(signed(t, "m", `{}`)), `"hmac-sha256"`, `"`+alg+`"`, 1)
		_, err := VerifyMessage("m", []byte(params), keys, "")
		wantReason(t, err, Algorithm)
	}
	both := &Key{ID: "ed", Secret: public, Public: keys["ed"].Public}
	_, err = VerifyMessage("m", forged, map[string]*Key{"ed": both}, "")
	wantReason(t, err, Algorithm)
}

func TestAttackMessageKeySwapped(t *testing.T) {
	keys := testKeys(t)
	keys["admin"], _ = NewSecret("admin", []byte("another secret of 32 bytes and more"))
	keys["copy"], _ = NewSecret("copy", testSecret) // the same secret: the ID is signed
	for id, want := range map[string]Reason{
		"admin": Mismatch, "copy": Mismatch, "unknown": Unknown,
		"": Malformed,
	} {
		params := strings.Replace(string(signed(t, "m", `{}`)), `"keyid":"ci"`, `"keyid":"`+id+`"`, 1)
		_, err := VerifyMessage("m", []byte(params), keys, "")
		wantReason(t, err, want)
	}
}

func TestAttackMessageMembers(t *testing.T) {
	keys := testKeys(t)
	params := string(signed(t, "m", `{"a":1}`))
	start := strings.Index(params, `"farcall.dev`)
	member := params[start : strings.Index(params, `}}`)+1]
	for name, changed := range map[string]string{
		"variant": strings.Replace(params, "farcall.dev/signature",
			"Farcall.dev/Signature", 1),
		"variant beside it": strings.Replace(params, member, member+`,"FARCALL.DEV/SIGNATURE":{}`, 1),
		"long s":            strings.Replace(params, "/signature", "/ſignature", 1),
		"long s beside it": strings.Replace(params, member, member+`,"farcall.dev/\u017Fignature":{}`,
			1),
		"variant of _meta": strings.Replace(params, "_meta", "_Meta", 1),
		"another _Meta":    strings.Replace(params, `{`, `{"_META":{`+member+`},`, 1),
		"twice":            strings.Replace(params, member, member+","+member, 1),
		"twice with escapes": strings.Replace(params, member,
			member+","+strings.Replace(member, "farcall", `\u0066arcall`, 1), 1),
		"_meta twice":          strings.Replace(params, `{`, `{"_meta":{},`, 1),
		"_meta twice, escaped": strings.Replace(params, `{`, `{"\u005fmeta":{`+member+`},`, 1),
		"member twice":         strings.Replace(params, `"a":1`, `"a":1,"a":1`, 1),
		"deep member twice":    strings.Replace(params, `"a":1`, `"a":{"b":[{"c":1,"\u0063":1}]}`, 1),
		"far apart":            strings.Replace(params, `"a":1`, `"b":1,"a":1,"c":1,"b":2`, 1),
		"keyid twice":          strings.Replace(params, `"keyid":`, `"keyid":"admin","keyid":`, 1),
		"Keyid":                strings.Replace(params, `"keyid":`, `"Keyid":`, 1),
		"Keyid beside":         strings.Replace(params, `"keyid":`, `"Keyid":"admin","keyid":`, 1),
		"unknown member":       strings.Replace(params, `"keyid":`, `"crit":[],"keyid":`, 1),
		"no nonce":             strings.Replace(params, `,"nonce":"nonce-0123456789"`, ``, 1),
		"no created":           strings.Replace(params, `"created":1700000000,`, ``, 1),
		"created as text":      strings.Replace(params, `1700000000`, `"1700000000"`, 1),
		"created as float":     strings.Replace(params, `1700000000`, `1700000000.0`, 1),
		"created negative":     strings.Replace(params, `1700000000`, `-1700000000`, 1),
		"created in digits":    strings.Replace(params, `1700000000`, `1000000000000000`, 1),
		"keyid a number":       strings.Replace(params, `"ci"`, `1`, 1),
		"an array":             params[:start] + `"farcall.dev/signature":[1]}}`,
		"null":                 params[:start] + `"farcall.dev/signature":null}}`,
	} {
		if changed == params || !HasSignature([]byte(changed)) {
			t.Errorf("%s: HasSignature says no", name)
		}
		_, err := VerifyMessage("m", []byte(changed), keys, "")
		wantReason(t, err, Malformed)
	}
	for _, none := range []string{
		`{}`, `{"a":1,"_meta":{}}`, `{"farcall.dev/signature":{}}`,
		`{"x":{"_meta":{` + member + `}}}`, `[{"_meta":{` + member + `}}]`, ``, `[]`,
	} {
		if HasSignature([]byte(none)) {
			t.Errorf("%s: HasSignature says yes", none)
		}
		_, err := VerifyMessage("m", []byte(none), keys, "")
		wantReason(t, err, Missing)
	}
}

// What HTTP signed is no signature of a message, nor the other way round.
func TestAttackSignatureMovedBetweenHTTPAndMessage(t *testing.T) {
	keys := testKeys(t)
	r := request(t, testBody)
	sig, _ := base64.StdEncoding.DecodeString(
		strings.Trim(strings.TrimPrefix(r.Header.Get("Signature"), "farcall="), ":"))
	params := fmt.Sprintf(
		`{"_meta":{"farcall.dev/signature":{"keyid":"ci","alg":"hmac-sha256","created":1700000000,`+
			`"nonce":"nonce-0123456789","sig":%q}},"name":"add"}`,
		base64.RawURLEncoding.EncodeToString(sig))
	_, err := VerifyMessage("tools/call", []byte(params), keys, "")
	wantReason(t, err, Mismatch)

	out := string(signed(t, "tools/call", `{"name":"add"}`))
	text := out[strings.Index(out, `"sig":"`)+7:]
	sig, _ = base64.RawURLEncoding.DecodeString(text[:43])
	r.Header.Set("Signature", "farcall=:"+base64.StdEncoding.EncodeToString(sig)+":")
	_, err = VerifyHTTP(r, []byte(testBody), keys)
	wantReason(t, err, Mismatch)
}

func TestAttackHTTP(t *testing.T) {
	keys := testKeys(t)
	keys["copy"], _ = NewSecret("copy", testSecret)
	input := func(old, changed string) func(*http.Request) {
		return func(r *http.Request) {
			value := r.Header.Get("Signature-Input")
			if strings.Replace(value, old, changed, 1) == value {
				t.Errorf("%s is not in %s", old, value)
			}
			r.Header.Set("Signature-Input", strings.Replace(value, old, changed, 1))
		}
	}
	set := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	add := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Add(name, value) }
	}
	for name, test := range map[string]struct {
		attack func(*http.Request)
		want   Reason
	}{
		"another method":         {func(r *http.Request) { r.Method = http.MethodPut }, Mismatch},
		"another path":           {func(r *http.Request) { r.RequestURI = "/rpc?a=1" }, Mismatch},
		"another query":          {func(r *http.Request) { r.RequestURI = "/mcp?a=2" }, Mismatch},
		"no query":               {func(r *http.Request) { r.RequestURI = "/mcp" }, Mismatch},
		"the query in the path":  {func(r *http.Request) { r.RequestURI = "/mcp%3Fa=1" }, Mismatch},
		"another host":           {func(r *http.Request) { r.Host = "evil.example" }, Mismatch},
		"another port":           {func(r *http.Request) { r.Host = "example.com:8080" }, Mismatch},
		"another digest":         {set("Content-Digest", "sha-256=:AAAA:"), Mismatch},
		"Mcp-Name changed":       {set("Mcp-Name", "delete"), Mismatch},
		"Mcp-Name twice":         {add("Mcp-Name", "delete"), Mismatch},
		"Mcp-Name gone":          {func(r *http.Request) { r.Header.Del("Mcp-Name") }, Mismatch},
		"Mcp-Name not covered":   {input(` "mcp-name"`, ``), Uncovered},
		"Mcp-Param added":        {set("Mcp-Param-Region", "eu"), Uncovered},
		"Mcp-Session-Id added":   {set("Mcp-Session-Id", "s"), Uncovered},
		"Authorization added":    {set("Authorization", "Bearer x"), Uncovered},
		"Content-Encoding added": {set("Content-Encoding", "gzip"), Uncovered},
		"mcp-name in lower case": {func(r *http.Request) {
			r.Header["mcp-name"] = []string{"x"}
		}, Malformed},
		"no digest covered":       {input(` "content-digest"`, ``), Uncovered},
		"digest gone":             {func(r *http.Request) { r.Header.Del("Content-Digest") }, Mismatch},
		"@method not covered":     {input(`"@method" `, ``), Uncovered},
		"@path not covered":       {input(` "@path"`, ``), Uncovered},
		"@query not covered":      {input(` "@query"`, ``), Uncovered},
		"@authority not covered":  {input(` "@authority"`, ``), Uncovered},
		"components swapped":      {input(`"@path" "@query"`, `"@query" "@path"`), Mismatch},
		"component twice":         {input(`"@path"`, `"@path" "@path"`), Malformed},
		"algorithm":               {input(`alg="hmac-sha256"`, `alg="ed25519"`), Algorithm},
		"algorithm none":          {input(`alg="hmac-sha256"`, `alg="none"`), Algorithm},
		"algorithm left out":      {input(`;alg="hmac-sha256"`, ``), Mismatch},
		"keyid of another kind":   {input(`keyid="ci"`, `keyid="ed"`), Algorithm},
		"keyid with the same key": {input(`keyid="ci"`, `keyid="copy"`), Mismatch},
		"keyid unknown":           {input(`keyid="ci"`, `keyid="unknown"`), Unknown},
		"nonce":                   {input(testNonce, "nonce-9876543210"), Mismatch},
		"no nonce":                {input(`;nonce="`+testNonce+`"`, ``), Uncovered},
		"no created":              {input(`;created=1700000000`, ``), Uncovered},
		"created":                 {input(`1700000000`, `1800000000`), Mismatch},
		"expires added":           {input(`;nonce`, `;expires=1900000000;nonce`), Mismatch},
		"expires before created":  {input(`;nonce`, `;expires=1;nonce`), Malformed},
		"unknown parameter":       {input(`;nonce`, `;x;nonce`), Malformed},
		"parameter twice":         {input(`;nonce`, `;keyid="ed";nonce`), Malformed},
		"another tag":             {input(`tag="farcall"`, `tag="other"`), Malformed},
		"no tag":                  {input(`;tag="farcall"`, ``), Mismatch},
		"bs":                      {input(`"mcp-name"`, `"mcp-name";bs`), Malformed},
		"sf":                      {input(`"mcp-name"`, `"mcp-name";sf`), Malformed},
		"key":                     {input(`"mcp-name"`, `"mcp-name";key="a"`), Malformed},
		"req":                     {input(`"mcp-name"`, `"mcp-name";req`), Malformed},
		"tr":                      {input(`"mcp-name"`, `"mcp-name";tr`), Malformed},
		"query-param":             {input(`"@query"`, `"@query-param";name="a"`), Malformed},
		"status":                  {input(`"@query"`, `"@query" "@status"`), Malformed},
		"signature covered":       {input(`"@query"`, `"@query" "signature"`), Malformed},
		"upper case":              {input(`"mcp-name"`, `"Mcp-Name"`), Malformed},
		"quote in a name":         {input(`"mcp-name"`, `"mcp\"name"`), Malformed},
		"label twice": {func(r *http.Request) {
			r.Header.Add("Signature-Input", r.Header.Get("Signature-Input"))
		}, Malformed},
		"signature twice": {func(r *http.Request) {
			r.Header.Add("Signature", r.Header.Get("Signature"))
		}, Malformed},
		"two with our tag":          {second(`;tag="farcall"`), Malformed},
		"input without a signature": {add("Signature-Input", `b=("@method")`), Malformed},
		"signature without input":   {add("Signature", `b=:AAAA:`), Malformed},
		"Signature alone": {func(r *http.Request) {
			r.Header.Del("Signature-Input")
		}, Malformed},
		"Signature-Input alone":  {func(r *http.Request) { r.Header.Del("Signature") }, Malformed},
		"a text for a signature": {set("Signature", `farcall="AAAA"`), Malformed},
		"short signature":        {set("Signature", `farcall=:AAAA:`), Malformed},
		"parameters of a signature": {func(r *http.Request) {
			r.Header.Set("Signature", r.Header.Get("Signature")+";a")
		}, Malformed},
		"line break in a header": {set("Mcp-Name", "add\nevil"), Malformed},
	} {
		r := request(t, testBody)
		test.attack(r)
		if !HTTPHasSignature(r) {
			t.Errorf("%s: HTTPHasSignature says no", name)
		}
		_, err := VerifyHTTP(r, []byte(testBody), keys)
		t.Run(name, func(t *testing.T) { wantReason(t, err, test.want) })
	}
}

// second adds a signature, with its own parameters.
func second(params string) func(*http.Request) {
	return func(r *http.Request) {
		r.Header.Add("Signature-Input", `b=("@method")`+params)
		r.Header.Add("Signature", `b=:AAAA:`)
	}
}

func TestAttackHTTPBodySwapped(t *testing.T) {
	keys := testKeys(t)
	for _, body := range []string{
		"", "{}", testBody + " ",
		strings.Replace(testBody, "add", "sub", 1),
	} {
		_, err := VerifyHTTP(request(t, testBody), []byte(body), keys)
		wantReason(t, err, Digest)
	}
	// A body for a request that had none.
	_, err := VerifyHTTP(request(t, ""), []byte(testBody), keys)
	wantReason(t, err, Uncovered)
	// Its own digest does not help, uncovered.
	own := request(t, "")
	own.Header.Set("Content-Digest", request(t, testBody).Header.Get("Content-Digest"))
	_, err = VerifyHTTP(own, []byte(testBody), keys)
	wantReason(t, err, Uncovered)
}

func TestContentDigest(t *testing.T) {
	body := []byte(`{"hello": "world"}`)
	const (
		good256 = "sha-256=:X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE=:"
		good512 = "sha-512=:WZDPaVn/7XgHaAy8pmojAkGWoRx2UFChF41A2svX+TaPm+AbwAgBWnrIiYllu7BNNyealdVLvRw" +
			"EmTHWXvJwew==:"
		bad256 = "sha-256=:X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPA=:"
	)
	for value, want := range map[string]Reason{
		good256: "", good512: "", good256 + ", " + good512: "", "md5=:AAAA:," + good256: "",
		bad256: Digest, bad256 + "," + good512: Digest, good512 + "," + bad256: Digest,
		"md5=:AAAA:":     Digest,
		"sha-256=:AAAA:": Digest, "SHA-256=:AAAA:": Malformed, "sha-256=X48E9": Malformed,
		"sha-256":          Malformed,
		"sha-256=(:AAAA:)": Malformed, "": Malformed, good256 + "," + bad256: Malformed,
		bad256 + "," + good256: Malformed,
		`sha-256=%"f"`:         Malformed, strings.Repeat("a=1,", 8) + "b=1": Malformed,
		"a=1;" + strings.Repeat("a", maxField): Malformed,
	} {
		err := checkDigest(http.Header{"Content-Digest": {value}}, body)
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", value, err)
		case want != "":
			t.Run(value[:min(len(value), 20)], func(t *testing.T) { wantReason(t, err, want) })
		}
	}
}

// A replayed request is genuine: its nonce and time say that it came before.
func TestReplayedRequestKeepsNonceAndTime(t *testing.T) {
	keys := testKeys(t)
	r := request(t, testBody)
	one, err := VerifyHTTP(r, []byte(testBody), keys)
	if err != nil {
		t.Fatal(err)
	}
	two, err := VerifyHTTP(r, []byte(testBody), keys)
	if err != nil || *one != *two || two.Nonce != testNonce || !two.Created.Equal(testTime) ||
		!two.Expires.IsZero() {
		t.Errorf("%+v, %v", two, err)
	}
	params := signed(t, "m", `{}`)
	if s, err := VerifyMessage("m", params, keys, ""); err != nil || *s != *two {
		t.Errorf("%+v, %v", s, err)
	}
	// Stale and future ones say so: who makes another time of it breaks the signature.
	for _, at := range []time.Time{time.Unix(1, 0), time.Unix(2_000_000_000, 0)} {
		out, _ := Message("m", nil, "ci", testSecret, at, testNonce, "")
		if s, err := VerifyMessage("m", out, keys, ""); err != nil || !s.Created.Equal(at) {
			t.Errorf("%+v, %v", s, err)
		}
	}
}

func TestKeyPrintsNoSecret(t *testing.T) {
	key := testKeys(t)["ci"]
	var b bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		fmt.Fprintf(&b, verb+verb, key, *key)
		fmt.Fprintf(&b, verb, struct{ K *Key }{key})
	}
	for _, secret := range []string{
		string(testSecret), fmt.Sprintf("%x", testSecret),
		fmt.Sprintf("%d", testSecret), "48, 49",
	} {
		if strings.Contains(b.String(), secret) {
			t.Errorf("%s is in %s", secret, b.String())
		}
	}
}
