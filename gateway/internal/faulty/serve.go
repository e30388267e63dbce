package faulty

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/farcall-dev/farcall/mcp/era"
)

const schema = `{"type":"object","properties":{"text":{"type":"string"}}}`

// serve answers until the input ends.
func (s *server) serve() int {
	for {
		message, err := s.read()
		if len(message) > 0 && s.mode != "silent" {
			s.handle(message)
		}
		if err != nil {
			return 0
		}
	}
}

func (s *server) handle(message []byte) {
	id, params := member(message, "id"), member(message, "params")
	switch method := plain(member(message, "method")); {
	case method == "":
		s.answered(plain(id), message)
	case method == "notifications/cancelled":
		if held := s.held; held != nil && string(member(params, "requestId")) == string(held) {
			s.held = nil
			s.answer(held, text("late"))
		}
	case s.mode == "roots" &&
		(method == "notifications/initialized" || method == "notifications/roots/list_changed"):
		s.send([]byte(`{"jsonrpc":"2.0","id":"roots","method":"roots/list"}`))
	case id == nil:
	case method == "initialize":
		rev := member(params, "protocolVersion")
		if rev == nil {
			rev = strconv.AppendQuote(nil, era.LatestLegacy().Name)
		}
		s.answer(id,
			fmt.Sprintf(`{"protocolVersion":%s,"capabilities":{"tools":{}},"serverInfo":{"name":"faulty",`+
				`"version":"1"}}`, rev))
	case method == "ping":
		s.answer(id, "{}")
	case method == "tools/list":
		s.answer(id,
			fmt.Sprintf(
				`{"tools":[{"name":"echo","inputSchema":%s},{"name":"pid","inputSchema":%s},{"name":"work",`+
					`"inputSchema":%s},`+
					`{"name":"safe","annotations":{"idempotentHint":true},"inputSchema":%s}]}`, schema, schema,
				schema, schema))
	case method == "tools/call":
		s.call(id, params)
	default:
		s.send(fmt.Appendf(nil,
			`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"Method not found"}}`, id))
	}
}

// call answers tools/call.
func (s *server) call(id, params []byte) {
	said := plain(member(params, "name"))
	switch said {
	case "echo":
		said = plain(member(params, "arguments", "text"))
	case "pid":
		said = strconv.Itoa(os.Getpid())
	}
	switch s.mode {
	case "crash-tool":
		s.note(plain(member(params, "name")))
		if slices.Contains(strings.Split(s.arg(""), ","), plain(member(params, "name"))) {
			fmt.Fprintln(os.Stderr, "panic: in a call")
			exit(4)
		}
	case "crash-call":
		fmt.Fprintln(os.Stderr, "panic: in a call")
		exit(4)
	case "flood-stderr":
		lines := s.number(10_000)
		for n := range lines {
			fmt.Fprintf(os.Stderr,
				"line %d of the flood, which is about as long as lines of logs are wont to be\n", n+1)
		}
	case "late":
		s.held = append([]byte(nil), id...)
		return
	case "wrong-id":
		s.answer([]byte(`"unknown"`), text("wrong"))
		s.answer([]byte(`999999`), text("wrong"))
	case "roots":
		said = ""
		if roots := s.roots.Load(); roots != nil {
			said = *roots
		}
	case "big":
		said = strings.Repeat("x", s.number(50)<<20)
	case "ask":
		key := fmt.Sprintf("ask-%d", len(s.asks)+1)
		if s.asks == nil {
			s.asks = make(map[string][]byte)
		}
		s.asks[key] = append([]byte(nil), id...)
		s.send(
			fmt.Appendf(nil,
				`{"jsonrpc":"2.0","id":%q,"method":"elicitation/create","params":{"message":"What is `+
					`your name?",`+
					`"requestedSchema":{"type":"object","properties":{"name":{"type":"string"}},`+
					`"required":["name"]}}}`, key))
		return
	}
	s.answer(id, text(said))
}

// answered takes an answer of the client.
func (s *server) answered(key string, message []byte) {
	if roots := string(member(message, "result", "roots")); s.mode == "roots" && roots != "" {
		late, _ := time.ParseDuration(s.arg("0"))
		time.AfterFunc(late, func() { s.roots.Store(&roots) })
		return
	}
	id, ok := s.asks[key]
	if !ok {
		return
	}
	if e := member(message, "error"); e != nil {
		s.answer(id, text("error: "+string(e)))
		return
	}
	action := plain(member(message, "result", "action"))
	if name := member(message, "result", "content", "name"); name != nil {
		action += " " + plain(name)
	}
	s.answer(id, text(action))
}

// note adds a line to the file that the second argument names.
func (s *server) note(line string) {
	if len(s.args) < 2 {
		return
	}
	f, err := os.OpenFile(s.args[1], os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = fmt.Fprintln(f, line)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		exit(2)
	}
}
