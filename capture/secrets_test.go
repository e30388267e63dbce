package capture_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/capture"
)

// secretKinds are kinds of secrets that are known by what they look like: %s is random.
var secretKinds = []string{
	"ghp_%s", "gho_%s", "ghs_%s", "github_pat_%s", "glpat-%s", "sk-%s", "sk_live_%s", "xoxb-%s",
	"AKIA%s", "fk_%s", "ASIA%s", "AIza%s", "npm_%s", "SG.%s.%s", "ya29.%s", "hf_%s", "xoxp-%s",
	"xapp-1-%s", "ghr_%s", "rk_live_%s", "whsec_%s", "dop_v1_%s", "shpat_%s", "glsa_%s", "sk-ant-%s",
	"pypi-%s%s", "dapi%s%s",
	"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiI%s.c2lnbmF0dXJl%s",
}

// secretNames are names of members with secret values.
var secretNames = []string{
	"password", "api_key", "apiKey", "X-Api-Key", "client_secret", "access_token", "refreshToken",
	"authorization", "Cookie",
	"private_key", "credentials", "otp", "session_id", "passphrase", "aws_secret_access_key",
}

// TestSecrets plants 1,000 secrets in all kinds of places, and looks for them in the file.
func TestSecrets(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	word := func() string {
		const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
		b := make([]byte, 24)
		for i := range b {
			b[i] = letters[random.IntN(len(letters))]
		}
		return string(b)
	}
	var planted []string
	plant := func() string {
		planted = append(planted, word())
		return planted[len(planted)-1]
	}
	looks := func() string {
		kind := secretKinds[random.IntN(len(secretKinds))]
		return strings.ReplaceAll(kind, "%s", plant())
	}
	basic := func() string {
		planted = append(planted, base64.StdEncoding.EncodeToString([]byte("user:"+word())))
		return planted[len(planted)-1]
	}
	name := func() string { return secretNames[random.IntN(len(secretNames))] }
	data := record(t, &capture.Options{MaxFrame: 4096}, func(r *capture.Recorder) {
		conn := r.Connect(&capture.Record{
			Transport: "stdio", Command: []string{
				"server", "--token", plant(), "--api-key=" + plant(), looks(),
			},
			Peer: "https://user:" + plant() + "@host/",
		})
		frame := func(format string, args ...any) {
			r.Frame(conn, true, fmt.Appendf(nil, format, args...))
		}
		for len(planted) < 1000 {
			frame(`{"id":1,"method":"m","params":{%q:%q}}`, name(), plant())
			frame(`{"id":1,"method":"m","params":{%q:{"deep":[%q,{"x":%q}]}}}`, name(), plant(), plant())
			frame(`{"id":1,"result":{"content":[{"type":"text","text":%s}]}}`,
				strconv.Quote("see "+looks()+" there"))
			frame(`{"id":1,"result":{"text":%s}}`, strconv.Quote(fmt.Sprintf("{%q: %q}", name(), plant())))
			frame(`{"id":1,"error":{"code":-1,"message":"Authorization: Bearer %s"}}`, plant())
			frame(`{"id":1,"error":{"code":-1,"message":"Basic %s"}}`, basic())
			frame(`{"method":"log","params":{"url":"https://u:%s@host/a?access_token=%s"}}`, plant(),
				plant())
			frame(`not JSON: password=%s token: %s`, plant(), plant())
			frame(`{"id":1,"method":"m","params":{%q:%q`, name(), plant()) // torn
			frame(`{"id":1,"method":"m","params":["%s","%s"]}`, strings.Repeat("x", 4096-50), looks())
			frame(`[{"id":1,"method":"m","params":{%q:%q}}]`, name(), plant())
			frame(`{"id":1,"method":"m","params":{"pass\u0077ord":%q}}`, plant())
			frame(`{"id":1,"method":"tools/list","result":{"tools":[{"inputSchema":{"properties":{"token":`+
				`{"type":"string","default":%q}}}}]}}`, plant())
			for _, kind := range []string{"stderr", "http"} {
				rec := &capture.Record{
					Type: kind, Conn: conn, Path: "/mcp?api_key=" + plant(),
					Header: map[string]string{"User-Agent": looks()},
					Why:    "Bearer " + plant(), Name: looks(),
				}
				rec.SetData([]byte("error: " + looks()))
				r.Put(rec)
			}
		}
	})
	leaked := 0
	for _, s := range planted {
		if before, _, ok := bytes.Cut(data, []byte(s)); ok {
			if leaked++; leaked <= 10 {
				line := data[bytes.LastIndexByte(before, '\n')+1:]
				t.Errorf("%s is in the file: %.300s", s, line[:bytes.IndexByte(line, '\n')])
			}
		}
	}
	if leaked > 0 {
		t.Errorf("%d of %d secrets are in the file", leaked, len(planted))
	}
	for _, rec := range ofType(read(t, data), "frame") {
		if got := text(t, rec); strings.Contains(got, `"inputSchema"`) &&
			!strings.Contains(got, `"token":{"type":"string","default":"[redacted:`) {
			t.Errorf("the structure of a schema is lost: %s", got)
		}
	}
}

// TestEqualSecrets: equal secrets have equal hashes, and others do not.
func TestEqualSecrets(t *testing.T) {
	t.Parallel()
	all := ofType(read(t, record(t, &capture.Options{}, func(r *capture.Recorder) {
		for _, s := range []string{"one", "one", "two"} {
			r.Frame(1, true, fmt.Appendf(nil, `{"id":1,"method":"m","params":{"token":%q,"pin":12}}`, s))
		}
	})), "frame")
	a, b, c := text(t, all[0]), text(t, all[1]), text(t, all[2])
	if a != b || a == c || !strings.Contains(a, `"pin":0`) || len(all[0].Redacted) != 2 ||
		all[0].Redacted[0].Path != "params.token" {
		t.Errorf("%s\n%s\n%s\n%+v", a, b, c, all[0].Redacted)
	}
}
