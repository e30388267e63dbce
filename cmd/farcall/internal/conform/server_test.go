package conform

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/coder/websocket"
)

// server is a small JSON-RPC server that is right, except where the test has it
// break a rule. It is written with encoding/json alone, so that it shares
// nothing with what it proves.
type server struct {
	broken string
	used   sync.Map // ids
}

func (s *server) is(broken string) bool { return s.broken == broken }

var errHangUp = errors.New("hang up")

// serve answers one frame. No answer is "".
func (s *server) serve(frame string) (string, error) {
	frame = strings.Trim(frame, " \t\r\n")
	switch s.broken {
	case "accepts-bom":
		frame = strings.TrimPrefix(frame, "\ufeff")
	case "accepts-bad-escape":
		frame = strings.ReplaceAll(frame, `\q`, "q")
	case "accepts-control":
		frame = strings.ReplaceAll(frame, "\x01", "")
	}
	if s.is("accepts-depth") && strings.Contains(frame, strings.Repeat("[", 20_000)) {
		return fail(frame[strings.LastIndex(frame, ":")+1:len(frame)-1], codeMethodNotFound), nil
	}
	if err := s.check(frame); err != nil {
		return s.parseError()
	}
	if !strings.HasPrefix(frame, "[") {
		a := s.one(frame, map[string]bool{})
		return a, nil
	}
	return s.batch(frame)
}

func (s *server) parseError() (string, error) {
	switch s.broken {
	case "parse-error-silent":
		return "", nil
	case "parse-error-closes":
		return fail("null", codeParse), errHangUp
	case "parse-error-hangs-up":
		return "", errHangUp
	case "parse-error-32600":
		return fail("null", codeInvalidRequest), nil
	case "parse-error-without-id":
		return `{"jsonrpc":"2.0","error":{"code":-32700,"message":"Parse error"}}`, nil
	case "parse-error-id-0":
		return fail("0", codeParse), nil
	}
	return fail("null", codeParse), nil
}

// check accepts what RFC 8259 calls a JSON text.
func (s *server) check(frame string) error {
	if s.is("accepts-trailing-data") {
		frame = strings.TrimSuffix(frame, " x")
	}
	if !utf8.ValidString(frame) && !s.is("accepts-invalid-utf-8") {
		return errors.New("not UTF-8")
	}
	if !json.Valid([]byte(frame)) {
		return errors.New("not JSON")
	}
	depth := 0
	for _, c := range frame { // braces in strings only make it stricter
		switch c {
		case '[', '{':
			depth++
		case ']', '}':
			depth--
		}
		if depth > 512 {
			return errors.New("too deep")
		}
	}
	return nil
}

func (s *server) batch(frame string) (string, error) {
	var elements []json.RawMessage
	if err := json.Unmarshal([]byte(frame), &elements); err != nil {
		return "", err
	}
	switch {
	case s.is("batch-refused"):
		return fail("null", codeInvalidRequest), nil
	case len(elements) == 0 && s.is("batch-empty-array"):
		return "[]", nil
	case len(elements) == 0 && s.is("batch-empty-silent"):
		return "", nil
	case len(elements) == 0:
		return fail("null", codeInvalidRequest), nil
	}
	var answers []string
	seen := map[string]bool{}
	for _, e := range elements {
		a := s.one(string(e), seen)
		if a == "" && s.is("batch-answers-notifications") {
			a = fail("null", codeMethodNotFound)
		}
		if a != "" && !strings.Contains(string(e), "jsonrpc") && s.is("batch-drops-invalid") {
			a = ""
		}
		if a != "" {
			answers = append(answers, a)
		}
	}
	switch {
	case len(answers) == 0 && s.is("batch-notifications-empty-array"):
		return "[]", nil
	case len(answers) == 0:
		return "", nil
	case s.is("batch-apart"):
		return strings.Join(answers, "\n"), nil
	case len(answers) == 1 && s.is("batch-one-unwrapped"):
		return answers[0], nil
	case s.is("batch-truncated-100"):
		answers = answers[:min(len(answers), 50)]
	case s.is("batch-trailing-comma"):
		return "[" + strings.Join(answers, ",") + ",]", nil
	}
	return "[" + strings.Join(answers, ",") + "]", nil
}

// one answers one message.
func (s *server) one(raw string, seen map[string]bool) string {
	if strings.HasPrefix(raw, "[") || !strings.HasPrefix(raw, "{") {
		if s.is("scalars-parse-error") {
			return fail("null", codeParse)
		}
		return fail("null", codeInvalidRequest)
	}
	m, twice := s.split(raw)
	id, hasID := m["id"]
	replyID := "null"
	if hasID && twice != "id" && validID(id) {
		replyID = id
	}
	if s.is("echoes-any-id") && hasID {
		replyID = id
	}
	_, hasMethod := m["method"]
	if _, ok := m["result"]; ok || m["error"] != "" {
		switch {
		case !hasMethod && s.is("answers-responses"):
			return fail(replyID, codeInvalidRequest)
		case !hasMethod:
			return ""
		case !s.is("accepts-method-and-result"):
			return fail(replyID, codeInvalidRequest)
		}
	}
	if bad := s.invalid(m, twice, hasID, id); bad != 0 {
		if s.is("invalid-has-null-id") {
			replyID = "null"
		}
		return fail(replyID, bad)
	}
	if hasID && seen[id] && !s.is("accepts-duplicate-ids") {
		return fail(replyID, codeInvalidRequest)
	}
	seen[id] = hasID
	if s.is("ids-kept-for-ever") && hasID {
		if _, used := s.used.LoadOrStore(id, true); used {
			return fail(replyID, codeInvalidRequest)
		}
	}
	if !hasID || s.is("null-id-is-notification") && id == "null" {
		if s.is("answers-notifications") {
			return fail("null", codeMethodNotFound)
		}
		return ""
	}
	var method string
	json.Unmarshal([]byte(m["method"]), &method)
	return s.call(s.mangle(id), method, m["params"])
}

// split takes an object apart and says which member, if any, is given twice.
func (s *server) split(raw string) (m map[string]string, twice string) {
	m = map[string]string{}
	dec := json.NewDecoder(strings.NewReader(raw))
	dec.Token()
	for dec.More() {
		start := dec.InputOffset()
		key, _ := dec.Token()
		var v json.RawMessage
		dec.Decode(&v)
		name := key.(string)
		if s.is("ignores-escaped-names") && strings.Contains(raw[start:dec.InputOffset()], `\u006d`) {
			continue
		}
		if s.is("folds-case") {
			name = strings.ToLower(name)
		}
		if _, ok := m[name]; ok && !s.is("accepts-duplicates") && !s.is("folds-case") {
			twice = name
		}
		m[name] = string(v)
	}
	return m, twice
}

func validID(id string) bool {
	return id != "" && id != "true" && id != "false" && id[0] != '{' && id[0] != '['
}

// invalid checks an envelope.
func (s *server) invalid(m map[string]string, twice string, hasID bool, id string) int {
	params := m["params"]
	known := map[string]bool{
		"jsonrpc": true, "method": true, "params": true, "id": true,
		"result": true, "error": true,
	}
	for name := range m {
		if !known[name] && s.is("refuses-unknown-members") {
			return codeInvalidRequest
		}
	}
	switch {
	case twice != "":
	case m["jsonrpc"] != `"2.0"` && !s.is("accepts-any-version"):
	case !strings.HasPrefix(m["method"], `"`):
		if s.is("bad-method-not-found") {
			return codeMethodNotFound
		}
	case hasID && !validID(id) && !s.is("accepts-any-id"):
	case params == "null" && s.is("refuses-params-null"):
		return codeInvalidParams
	case params != "" && params != "null" && params[0] != '[' && params[0] != '{':
		if s.is("accepts-scalar-params") {
			return 0
		}
		if s.is("scalar-params-32602") {
			return codeInvalidParams
		}
	default:
		return 0
	}
	return codeInvalidRequest
}

// mangle is what careless decoding does to an id.
func (s *server) mangle(id string) string {
	var n json.Number
	isNumber := json.Unmarshal([]byte(id), &n) == nil && id[0] != '"' && id != "null"
	switch {
	case s.is("ids-as-float") && isNumber:
		f, err := n.Float64()
		if err != nil {
			return "0"
		}
		return marshal(f)
	case s.is("ids-as-int") && isNumber:
		f, _ := n.Float64()
		return strconv.FormatInt(int64(f), 10)
	case s.is("ids-decoded") && id[0] == '"':
		var v string
		json.Unmarshal([]byte(id), &v)
		return marshal(v)
	case s.is("ids-as-string") && isNumber:
		return `"` + id + `"`
	case s.is("ids-dropped"):
		return "null"
	}
	return id
}

func marshal(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return "null"
	}
	return string(b)
}

func (s *server) call(id, method, params string) string {
	switch method {
	case "echo":
		params = cmp.Or(params, "null")
		if s.is("echo-reencodes") {
			var v any
			json.Unmarshal([]byte(params), &v)
			params = marshal(v)
		}
		return `{"jsonrpc":"2.0","result":` + params + `,"id":` + id + `}`
	case "subtract":
		var p struct{ Minuend, Subtrahend float64 }
		if json.Unmarshal([]byte(params), &[]any{&p.Minuend, &p.Subtrahend}) != nil &&
			json.Unmarshal([]byte(params), &p) != nil {
			return fail(id, codeInvalidParams)
		}
		if s.is("wrong-result") {
			p.Minuend++
		}
		return fmt.Sprintf(`{"jsonrpc":"2.0","result":%v,"id":%s}`, p.Minuend-p.Subtrahend, id)
	case "sum":
		return `{"jsonrpc":"2.0","result":7,"id":` + id + `}`
	case "get_data":
		return `{"jsonrpc":"2.0","result":["hello",5],"id":` + id + `}`
	}
	switch s.broken {
	case "unknown-method-32600":
		return fail(id, codeInvalidRequest)
	case "unknown-method-null":
		return `{"jsonrpc":"2.0","result":null,"id":` + id + `}`
	case "unknown-method-silent":
		return ""
	case "answers-1.0":
		return `{"result":null,"error":{"code":-32601,"message":"Method not found"},"id":` + id + `}`
	case "answers-both":
		return `{"jsonrpc":"2.0","result":null,"error":{"code":-32601,"message":"Method not ` +
			`found"},"id":` + id + `}`
	case "error-is-text":
		return `{"jsonrpc":"2.0","error":"Method not found","id":` + id + `}`
	case "error-code-is-text":
		return `{"jsonrpc":"2.0","error":{"code":"-32601","message":"Method not found"},"id":` + id + `}`
	case "answers-twice":
		return fail(id, codeMethodNotFound) + "\n" + fail(id, codeMethodNotFound)
	case "other-message":
		return `{"jsonrpc":"2.0","error":{"code":-32601,"message":"what?"},"id":` + id + `}`
	}
	return fail(id, codeMethodNotFound)
}

func fail(id string, code int) string {
	text := map[int]string{
		codeParse: "Parse error", codeInvalidRequest: "Invalid Request",
		codeMethodNotFound: "Method not found", codeInvalidParams: "Invalid params",
	}[code]
	return fmt.Sprintf(`{"jsonrpc":"2.0","error":{"code":%d,"message":%q},"id":%s}`, code, text, id)
}

// listener is a listener in memory, so that the tests can run in fake time.
type listener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newListener() *listener {
	return &listener{conns: make(chan net.Conn), done: make(chan struct{})}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *listener) Addr() net.Addr { return &net.UnixAddr{Name: "memory"} }

func (l *listener) dial(ctx context.Context) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case l.conns <- theirs:
		return ours, nil
	case <-l.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// listen serves a byte stream for each connection.
func (s *server) listen(
	t *testing.T, serve func(net.Conn),
) func(context.Context) (io.ReadWriteCloser, error) {
	t.Helper()
	l := newListener()
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				serve(c)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		wg.Wait()
	})
	return func(ctx context.Context) (io.ReadWriteCloser, error) { return l.dial(ctx) }
}

// listenHTTP serves HTTP and returns a client that reaches nothing else.
func (s *server) listenHTTP(t *testing.T, h http.HandlerFunc) *http.Client {
	t.Helper()
	l := newListener()
	hs := &http.Server{Handler: h}
	var wg sync.WaitGroup
	wg.Go(func() { hs.Serve(l) })
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return l.dial(ctx)
	}}
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		hs.Close()
		wg.Wait()
	})
	return &http.Client{Transport: tr}
}

func (s *server) lines(t *testing.T) Dialer {
	t.Helper()
	return NewLines(s.listen(t, func(c net.Conn) {
		r := bufio.NewReader(c)
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			if strings.TrimSpace(line) == "" && !s.is("empty-lines-parse-error") {
				continue
			}
			if s.is("one-message-per-read") {
				r.Discard(r.Buffered())
			}
			answer, err := s.serve(line)
			if answer != "" {
				fmt.Fprintln(c, answer)
			}
			if err != nil {
				return
			}
		}
	}))
}

func (s *server) headers(t *testing.T) Dialer {
	t.Helper()
	return NewHeaders(s.listen(t, func(c net.Conn) {
		r := bufio.NewReader(c)
		for {
			n, unknown := -1, false
			for {
				line, err := r.ReadString('\n')
				if err != nil {
					return
				}
				name, value, found := strings.Cut(strings.TrimSpace(line), ": ")
				if !found {
					break
				}
				if strings.EqualFold(name, "Content-Length") &&
					(!s.is("headers-case-sensitive") || name == "Content-Length") {
					fmt.Sscan(value, &n)
				} else {
					unknown = true
				}
			}
			if n < 0 || unknown && s.is("headers-unknown-refused") {
				return
			}
			b := make([]byte, n)
			if _, err := io.ReadFull(r, b); err != nil {
				return
			}
			answer, err := s.serve(string(b))
			if answer != "" {
				fmt.Fprintf(c, "Content-Length: %d\r\n\r\n%s", len(answer), answer)
			}
			if err != nil {
				return
			}
		}
	}))
}

func (s *server) websocket(t *testing.T) Dialer {
	t.Helper()
	client := s.listenHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer c.CloseNow()
		c.SetReadLimit(1 << 20)
		for {
			_, b, err := c.Read(r.Context())
			if err != nil {
				return
			}
			answer, err := s.serve(string(b))
			if answer != "" {
				c.Write(r.Context(), websocket.MessageText, []byte(answer))
			}
			if err != nil {
				return
			}
		}
	})
	return NewWebSocket(client, "ws://memory/", nil)
}

func (s *server) http(t *testing.T) Dialer {
	t.Helper()
	client := s.listenHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		answer, err := s.serve(string(b))
		w.Header().Set("Content-Type", "application/json")
		switch {
		case s.is("http-text-plain"):
			w.Header().Set("Content-Type", "text/plain")
		case s.is("http-event-stream") && answer != "":
			w.Header().Set("Content-Type", "text/event-stream")
			answer = "event: message\ndata: " + answer + "\n\n"
		case s.is("http-html-error") && bytes.Contains(b, []byte(`"id":{}`)):
			http.Error(w, "<html>oops</html>", http.StatusInternalServerError)
			return
		case answer == "" && s.is("http-notification-500"):
			w.WriteHeader(http.StatusInternalServerError)
		case answer == "" && err == nil:
			w.WriteHeader(http.StatusNoContent)
		}
		io.WriteString(w, answer)
	})
	return NewHTTP(client, "http://memory/", nil)
}
