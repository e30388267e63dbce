package mcp_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/internal/mcptest"
)

// wireSchema checks messages against the schema of one revision.
type wireSchema struct {
	validate func(tb testing.TB, def string, raw []byte)
	defs     map[string]bool
	methods  map[string]string // the def of a request or notification
}

func newWireSchema(t *testing.T, dir, revision string) *wireSchema {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, revision, "schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	type definition struct {
		Properties struct {
			Method struct{ Const string }
		}
	}
	var schema struct {
		Definitions map[string]definition
		Defs        map[string]definition `json:"$defs"`
	}
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	s := &wireSchema{
		validate: mcptest.Validator(t, revision), defs: map[string]bool{},
		methods: map[string]string{},
	}
	for _, all := range []map[string]definition{schema.Definitions, schema.Defs} {
		for name, def := range all {
			s.defs[name] = true
			if method := def.Properties.Method.Const; method != "" && name != "ClientNotification" {
				s.methods[method] = name
			}
		}
	}
	return s
}

// wireMessage is what matters of a message here.
type wireMessage struct {
	ID     json.RawMessage
	Method string
	Result json.RawMessage
	Error  json.RawMessage
}

// file checks the messages of an exchange that are not wrong on purpose.
func (s *wireSchema) file(t *testing.T, f *wireFile) {
	t.Helper()
	asked := map[string]string{} // method by sender and id
	n := 0
	for _, m := range f.messages() {
		var batch []json.RawMessage
		if m.raw[0] != '[' {
			batch = append(batch, m.raw)
		} else if err := json.Unmarshal(m.raw, &batch); err != nil {
			t.Fatal(err)
		}
		for _, raw := range batch {
			n++
			s.message(t, m.from, m.wrong, raw, asked)
		}
	}
	if n == 0 {
		t.Error("no messages found")
	}
}

func (s *wireSchema) message(
	t *testing.T, from string, wrong bool, raw json.RawMessage, asked map[string]string,
) {
	t.Helper()
	var m wireMessage
	if err := json.Unmarshal(raw, &m); err != nil {
		if !wrong {
			t.Errorf("%v: %s", err, raw)
		}
		return
	}
	other := map[string]string{">": "<", "<": ">"}[from]
	switch {
	case m.Method != "":
		if m.ID != nil {
			asked[from+string(m.ID)] = m.Method
		}
		def := s.methods[m.Method]
		if def == "" || wrong { // of an extension, or wrong on purpose
			return
		}
		s.validate(t, def, raw)
	case wrong:
	case m.Error != nil:
		if string(m.ID) == "null" && !s.defs["JSONRPCErrorResponse"] {
			return // JSON-RPC demands it; the older schemas forgot
		}
		s.error(t, m.ID, raw)
	default:
		s.result(t, asked[other+string(m.ID)], m.Result)
	}
}

func (s *wireSchema) error(t *testing.T, id, raw json.RawMessage) {
	t.Helper()
	def := "JSONRPCErrorResponse"
	if !s.defs[def] {
		def = "JSONRPCError"
	}
	if string(id) == "null" {
		raw = []byte(strings.Replace(string(raw), `"id":null`, `"id":0`, 1)) // as above
	}
	s.validate(t, def, raw)
}

func (s *wireSchema) result(t *testing.T, method string, result json.RawMessage) {
	t.Helper()
	var kind struct {
		ResultType string
		Task       json.RawMessage
	}
	if err := json.Unmarshal(result, &kind); err != nil {
		t.Fatal(err)
	}
	request := s.methods[method]
	def := strings.TrimSuffix(request, "Request") + "Result"
	switch {
	case kind.ResultType == "task" || request == "": // of an extension
		return
	case kind.ResultType == "input_required":
		def = "InputRequiredResult"
	case kind.Task != nil:
		def = "CreateTaskResult"
	case request == "GetTaskPayloadRequest":
		def = "CallToolResult"
	case !s.defs[def]:
		def = "EmptyResult"
	}
	s.validate(t, def, result)
}

// wireSent is one message, or batch, of a file.
type wireSent struct {
	from  string // ">" is the client
	wrong bool
	raw   json.RawMessage
}

// messages finds the JSON in an exchange.
func (f *wireFile) messages() (all []wireSent) {
	var text, last string
	for line := range strings.SplitSeq(f.text, "\n") {
		m := wireLine.FindStringSubmatch(line)
		if m == nil {
			text = ""
			continue
		}
		if key := m[1] + m[2] + m[3]; key != last {
			text, last = "", key
		}
		part := strings.TrimPrefix(m[4], "data: ")
		if text == "" && !strings.HasPrefix(part, "{") && !strings.HasPrefix(part, "[") {
			continue
		}
		for name, value := range f.macros {
			part = strings.ReplaceAll(part, "<"+name+">", value)
		}
		text += part
		if json.Valid([]byte(text)) {
			all = append(all,
				wireSent{from: m[2], wrong: m[3] != "", raw: json.RawMessage(compactJSON(text))})
			text = ""
		}
	}
	return all
}
