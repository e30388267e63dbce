// Package wording answers one question: how does the failure of a connection read for those who
// configure the gateway?
//
// The packages below name options of Go in their errors, and which of them noticed a failure.
// Operators and callers have the keys of a configuration instead.
package wording

import (
	"errors"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// layers are what packages put before the text of an error.
var layers = regexp.MustCompile(
	`^(?:mcp: (?:connect: )?|farcall: not sent: |"[\w/$.-]+": |farcall: call "[^"]*": ` +
		`|(?:mcphttp|httprpc): cannot reach the server: )+`)

// calls are what the peer puts before the text of a call's error, within the text of another one.
var calls = regexp.MustCompile(`farcall: call "[^"]*": `)

// keys names keys of an upstream for options of Go.
var keys = strings.NewReplacer(
	"set DialOptions.TLS.RootCAs", "name a file with it: tls: {ca: FILE}",
	"raise DialOptions.MaxMessage", "raise max_message",
	"raise Options.MaxMessage", "raise max_message",
	"; raise DialOptions.MaxEvent", "",
	"; raise Options.MaxEvent", "",
	" (Options.MaxHeader)", "",
	"; see ClientOptions.Era", "; see era",
	"(it may be legacy: see ClientOptions.Era)", "(it may be legacy: see era)",
	": see ClientOptions.Era", "",
	"; see ClientOptions.MaxRounds", "",
	"; no Redial function is configured: see ClientOptions.Redial", "",
	"(ClientOptions.Timeout)", "(timeout)",
	" (ClientOptions.MaxTimeout)", "",
	"(the server wants credentials: ", "(the server wants credentials, see headers and auth: ",
	"farcall: the other end broke", "the server broke",
)

// Text returns the text of an error in the words of the configuration, without the secrets of an
// address.
func Text(err error) string {
	text := err.Error()
	if e, ok := errors.AsType[*url.Error](err); ok {
		where := "the server"
		if u, err := url.Parse(e.URL); err == nil {
			where = u.Scheme + "://" + u.Host
		}
		text = strings.ReplaceAll(strings.ReplaceAll(text, strconv.Quote(e.URL), where), e.URL, where)
	}
	return keys.Replace(calls.ReplaceAllString(text[len(layers.FindString(text)):], ""))
}
