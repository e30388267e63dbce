package jsonrpc

import (
	"bytes"
	"encoding/json"
	"testing"
	"unicode/utf8"
)

// FuzzDecode: Decode accepts exactly what encoding/json and unicode/utf8 do,
// and what is written from the parts of a message decodes to the same parts.
func FuzzDecode(f *testing.F) {
	for _, test := range decodeCases {
		f.Add([]byte(test.frame))
	}
	for _, test := range decodeExamples {
		f.Add([]byte(test.frame))
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		original := bytes.Clone(frame)
		for _, d := range []Decoder{
			{MaxDepth: -1},
			{MaxDepth: -1, AcceptV1: true},
			{MaxDepth: -1, StrictAnswers: true},
		} {
			var b Batch
			err := d.Decode(frame, &b)
			if len(frame) < 5000 { // below encoding/json's limit of depth
				valid := json.Valid(frame) && utf8.Valid(frame)
				if refused := err != nil && err.Code == ParseError; refused == valid {
					t.Fatalf("%q: %v", frame, err)
				}
			}
			if (err == nil) != (len(b.Messages) > 0) {
				t.Fatalf("%q: %v and %d messages", frame, err, len(b.Messages))
			}
			for i := range b.Messages {
				checkMessage(t, &d, &b.Messages[i])
			}
			if !bytes.Equal(frame, original) {
				t.Fatalf("%q became %q", original, frame)
			}
		}
	})
}

func checkMessage(t *testing.T, d *Decoder, m *Message) {
	t.Helper()
	wantErr := m.Kind == Invalid
	if (m.Err != nil) != wantErr && m.Kind != Response {
		t.Fatalf("%s: kind %d with %v", m.Raw, m.Kind, m.Err)
	}
	if m.ID.IsAbsent() != (m.Kind == Notification) {
		t.Fatalf("%s: kind %d with id %q", m.Raw, m.Kind, m.ID)
	}
	c := m.Clone()
	sameMessage(t, m, &c)
	if got := m.AppendWithID(nil, m.ID); m.idEnd > 0 && m.Version == V2 && !bytes.Equal(got, m.Raw) {
		t.Fatalf("%s became %s", m.Raw, got)
	}
	m.Member("x")
	if m.Err != nil {
		return
	}
	// With another id, only that is different.
	redecoded := decodeOne(t, d, m.AppendWithID(nil, StringID("other")))
	if redecoded.ID.String() != `"other"` {
		t.Fatalf("%s: id %s", redecoded.Raw, redecoded.ID)
	}
	redecoded.Kind, redecoded.ID = m.Kind, m.ID
	sameMessage(t, m, redecoded)

	var wire []byte
	switch {
	case m.Kind != Response:
		wire = m.Version.AppendRequest(nil, m.ID, string(m.Method), m.Params)
	case m.Error == nil:
		wire = m.Version.AppendResult(nil, m.ID, m.Result)
	default:
		failure := m.Failure()
		wire = m.Version.AppendError(nil, m.ID, failure)
		again := decodeOne(t, d, wire).Failure()
		if again.Code != failure.Code || again.Message != failure.Message ||
			!bytes.Equal(again.Data, failure.Data) {
			t.Fatalf("%s: %v became %v", m.Raw, failure, again)
		}
		return
	}
	again := decodeOne(t, d, wire)
	if again.Params != nil && m.Params == nil { // JSON-RPC 1.0 has no optional members
		again.Params = nil
	}
	sameMessage(t, m, again)
}

func decodeOne(t *testing.T, d *Decoder, frame []byte) *Message {
	t.Helper()
	var b Batch
	if err := d.Decode(frame, &b); err != nil || len(b.Messages) != 1 || b.Messages[0].Err != nil {
		t.Fatalf("%s: %v %+v", frame, err, b.Messages)
	}
	return &b.Messages[0]
}

func sameMessage(t *testing.T, a, b *Message) {
	t.Helper()
	if a.Kind != b.Kind || a.Version != b.Version || !a.ID.Equal(b.ID) ||
		!bytes.Equal(a.Method, b.Method) ||
		!bytes.Equal(a.Params, b.Params) || (a.Params == nil) != (b.Params == nil) ||
		!bytes.Equal(a.Result, b.Result) || !bytes.Equal(a.Error, b.Error) ||
		(a.Err == nil) != (b.Err == nil) {
		t.Fatalf("\n%+v\nis not\n%+v", a, b)
	}
}
