package main

import (
	"cmp"
	"fmt"
	"net"
	"strings"

	"github.com/farcall-dev/farcall/internal/target"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/stream"
)

// printShellLine is --curl.
func (r *remote) printShellLine(q *invocation, notify bool) error {
	if r.cert != "" && q.target.Kind == target.WebSocket {
		return usagef("Use an https or tls target, or leave one out.", "--curl: websocat reads no certificate in PEM")
	}
	_, err := fmt.Fprintln(r.stdout, r.shellLine(q.target, q.method, q.params, notify))
	return err
}

// shellLine is the line that makes the same call without farcall.
func (r *remote) shellLine(t *target.Target, method string, params jsonrpc.Raw, notify bool) string {
	id := jsonrpc.IntID(1)
	if notify {
		id = jsonrpc.ID{}
	}
	message := string(r.version().AppendRequest(nil, id, method, compact(params)))
	line := "printf '%s\\n' " + shellQuote(message) + " | "
	if t.Framing == stream.Header {
		line = fmt.Sprintf("printf 'Content-Length: %d\\r\\n\\r\\n%%s' %s | ", len(message), shellQuote(message))
	}
	switch t.Kind {
	case target.HTTP:
		return r.curlLine(t, message)
	case target.WebSocket:
		return line + r.websocatLine(t)
	case target.Stream:
		return line + r.streamLine(t)
	}
	return line + shellWords(t.Command)
}

// streamLine is a command that connects its standard input and output to a byte stream.
func (r *remote) streamLine(t *target.Target) string {
	switch t.Scheme {
	case "tls":
		return "openssl s_client -quiet -connect " + shellQuote(t.Address) + r.opensslFlags()
	case "unix":
		return "nc -U " + shellQuote(t.Address)
	}
	return "nc " + shellWords(hostPort(t.Address))
}

func (r *remote) version() jsonrpc.Version {
	if r.v1 {
		return jsonrpc.V1
	}
	return jsonrpc.V2
}

func (r *remote) curlLine(t *target.Target, message string) string {
	words := []string{"curl", "-sS"}
	if r.gzip {
		words = append(words, "--compressed")
	}
	if r.insecure {
		words = append(words, "-k")
	}
	if r.cacert != "" {
		words = append(words, "--cacert", r.cacert)
	}
	if r.cert != "" {
		words = append(words, "--cert", r.cert)
	}
	if r.key != "" {
		words = append(words, "--key", r.key)
	}
	if r.timeout > 0 && r.timeout != defaultTimeout {
		words = append(words, "--max-time", fmt.Sprint(r.timeout.Seconds()))
	}
	words = append(words, "-H", "Content-Type: application/json")
	for _, h := range r.header {
		words = append(words, "-H", h)
	}
	return shellWords(words) + r.bearerWords() + " " + shellWords([]string{"--data-binary", message, t.URL.String()})
}

func (r *remote) websocatLine(t *target.Target) string {
	words := []string{"websocat", "-n1"}
	if r.insecure {
		words = append(words, "-k")
	}
	for _, h := range r.header {
		words = append(words, "-H", h)
	}
	return shellWords(words) + r.bearerWords() + " " + shellWords([]string{t.URL.String()})
}

// bearerWords are the header of --bearer: the token stays in its file.
func (r *remote) bearerWords() string {
	if r.bearer == "" {
		return ""
	}
	return ` -H "Authorization: Bearer $(cat ` + shellQuote(r.bearer) + `)"`
}

func (r *remote) opensslFlags() (flags string) {
	if r.cert != "" {
		flags = " -cert " + shellQuote(r.cert) + " -key " + shellQuote(cmp.Or(r.key, r.cert))
	}
	switch {
	case r.insecure:
		return flags
	case r.cacert != "":
		return flags + " -verify_return_error -CAfile " + shellQuote(r.cacert)
	}
	return flags + " -verify_return_error"
}

func hostPort(address string) []string {
	host, port, _ := net.SplitHostPort(address)
	return []string{host, port}
}

func shellWords(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = shellQuote(w)
	}
	return strings.Join(quoted, " ")
}

// shellQuote writes a word so that a POSIX shell reads it as it is.
func shellQuote(word string) string {
	plain := word != ""
	for _, c := range word {
		plain = plain && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("-_./:@%+,=", c))
	}
	if plain {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
