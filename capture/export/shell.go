package export

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/farcall-dev/farcall/capture"
	"github.com/farcall-dev/farcall/internal/scan"
)

// shell writes a line for a POSIX shell for each message of a client. What comes from the capture
// is quoted.
type shell struct {
	out   *bytes.Buffer
	url   string
	conns conns
	http  *capture.Record // the envelope of the last request of HTTP
}

func (s *shell) record(rec *capture.Record) {
	s.conns.take(rec)
	if rec.Type == "http" && rec.Dir == "up" {
		s.http = rec.Clone()
	}
}

func (s *shell) frame(rec *capture.Record, data []byte) {
	if rec.Dir != "up" || rec.Side() != "" {
		return
	}
	line := ""
	switch {
	case data == nil || rec.Cut > 0:
		line = "the capture does not have all of its bytes"
	case rec.Kind == "bad" || len(data) == 0 || strings.ContainsRune(string(data), 0):
		line = "it is not a message"
	case len(rec.Redacted) > 0:
		line = "secrets were replaced in it"
	}
	if line != "" {
		fmt.Fprintf(s.out, "# record %d is left out: %s\n", rec.Seq, line)
		return
	}
	fmt.Fprintf(s.out, "# record %d\n%s\n", rec.Seq, s.line(rec, s.conns.of(rec.Conn), data))
}

func (s *shell) end() {}

// line is the line that sends a message.
func (s *shell) line(rec, conn *capture.Record, data []byte) string {
	text := quote(string(data))
	switch {
	case s.url != "" || strings.Contains(conn.Transport, "http") || rec.Exchange != 0:
		return "curl -sS " + s.headers(rec) + "--data-binary " + text + " " + quote(s.address(rec, conn))
	case conn.Transport == "ws" || conn.Transport == "wss":
		return "printf '%s\\n' " + text + " | websocat -1 " + quote(conn.Transport+"://"+conn.Peer)
	case len(conn.Command) > 0:
		words := make([]string, len(conn.Command))
		for i, word := range conn.Command {
			words[i] = quote(word)
		}
		return "printf '%s\\n' " + text + " | " + strings.Join(words, " ")
	case conn.Peer != "":
		return "farcall call " + quote(conn.Transport+"://"+conn.Peer) + " " + call(data)
	}
	return "farcall call \"$TARGET\" " + call(data)
}

// call is the method and the params of a message as 'farcall call' takes them.
func call(data []byte) string {
	method, params := scan.StringMember(data, "method"), scan.Member(data, "params")
	if params == nil {
		return quote(method)
	}
	return quote(method) + " " + quote(string(params))
}

// address is where the request of a frame was sent.
func (s *shell) address(rec, conn *capture.Record) string {
	if s.url != "" {
		return s.url
	}
	path := "/"
	if s.http != nil && s.http.Exchange == rec.Exchange && strings.HasPrefix(s.http.Path, "/") {
		path = s.http.Path
	}
	if conn.Peer == "" {
		return "http://localhost" + path
	}
	return "http://" + conn.Peer + path
}

func (s *shell) headers(rec *capture.Record) string {
	const plain = "-H 'Content-Type: application/json' " +
		"-H 'Accept: application/json, text/event-stream' "
	if s.http == nil || s.http.Exchange != rec.Exchange {
		return plain
	}
	var line strings.Builder
	line.WriteString(plain)
	for _, name := range []string{"Mcp-Method", "Mcp-Protocol-Version"} {
		if value := s.http.Header[name]; value != "" {
			line.WriteString("-H " + quote(name+": "+value) + " ")
		}
	}
	return line.String()
}

// quote quotes a word for a POSIX shell.
func quote(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }
