package spec_test

import (
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
)

func TestContent(t *testing.T) {
	size := int64(0)
	for name, test := range map[string]struct {
		c    spec.Content
		want string
	}{
		"zero": {spec.Content{}, `{"type":"text","text":""}`},
		"escapes": {
			spec.Content{Type: "text", Text: "\"\\\n\x00<é\xff"},
			`{"type":"text","text":"\"\\\n\u0000<é` + "\ufffd" + `"}`,
		},
		"of its type": {
			spec.Content{Type: "text", Text: "a", URI: "x:y", Data: []byte("x"), ID: "1"},
			`{"type":"text","text":"a"}`,
		},
		"empty image": {spec.Content{Type: "image"}, `{"type":"image","data":"","mimeType":""}`},
		"link": {
			spec.Content{Type: "resource_link", URI: "x:y", Size: &size},
			`{"type":"resource_link","uri":"x:y","name":"","size":0}`,
		},
		"no resource": {
			spec.Content{Type: "resource"}, `{"type":"resource","resource":{"uri":"","text":""}}`,
		},
		"empty blob": {
			spec.Content{Type: "resource", Resource: &spec.ResourceContents{URI: "x:y", Blob: []byte{}}},
			`{"type":"resource","resource":{"uri":"x:y","blob":""}}`,
		},
		"no input": {
			spec.Content{Type: "tool_use", ID: "1", Name: "n"},
			`{"type":"tool_use","id":"1","name":"n","input":{}}`,
		},
		"null is data": {
			spec.Content{Type: "tool_result", StructuredContent: jsonrpc.Raw("null")},
			`{"type":"tool_result","toolUseId":"","content":[],"structuredContent":null}`,
		},
		"meta": {
			spec.Content{Meta: spec.Meta{}, Annotations: &spec.Annotations{}},
			`{"type":"text","text":"","annotations":{},"_meta":{}}`,
		},
		"unknown": {
			spec.Content{Type: "video", Raw: jsonrpc.Raw(`{"type":"video","x":[1.0]}`)},
			`{"type":"video","x":[1.0]}`,
		},
		"only a type": {spec.Content{Type: "video", Text: "a"}, `{"type":"video"}`},
	} {
		if got := test.c.AppendJSON([]byte("x")); string(got) != "x"+test.want {
			t.Errorf("%s: got %s, want x%s", name, got, test.want)
		}
		// The standard library's encoder, too, and of a value that has no address.
		if got, err := json.Marshal([1]spec.Content{test.c}); err != nil ||
			parsedEqual(t, got, "["+test.want+"]") != nil {
			t.Errorf("%s: encoding/json gives %s, %v", name, got, err)
		}
	}
}

func parsedEqual(t *testing.T, got []byte, want string) any {
	t.Helper()
	if a, b := parsed(t, got), parsed(t, []byte(want)); !reflect.DeepEqual(a, b) {
		return a
	}
	return nil
}

func TestContentDecodes(t *testing.T) {
	for in, want := range map[string]spec.Content{
		`{"text":"a\u00e9\n","type":"text"}`:                       {Type: "text", Text: "aé\n"},
		`{"\u0074ype":"text","text":"a"}`:                          {Type: "text", Text: "a"},
		`{"type":"text","text":"a","data":7,"name":{},"extra":[]}`: {Type: "text", Text: "a"},
		`{"type":"text","text":null,"annotations":null}`:           {Type: "text"},
		`{"type":"image","data":"aGk=","mimeType":"image\/png"}`: {
			Type: "image", Data: []byte("hi"),
			MIMEType: "image/png",
		},
		`{"type":"audio","data":"\u0061Gk="}`: {Type: "audio", Data: []byte("hi")},
		`{"type":"video","text":7,"x":{"y":1.0}}`: {
			Type: "video",
			Raw:  jsonrpc.Raw(`{"type":"video","text":7,"x":{"y":1.0}}`),
		},
		`{"type":"resource","resource":{"uri":"x:y","blob":""}}`: {
			Type:     "resource",
			Resource: &spec.ResourceContents{URI: "x:y", Blob: []byte{}},
		},
		`{"type":"resource","resource":{"uri":"x:y","blob":null}}`: {
			Type:     "resource",
			Resource: &spec.ResourceContents{URI: "x:y"},
		},
		`{"type":"tool_use","id":"1","name":"n","input":{"a":1.0}}`: {
			Type: "tool_use", ID: "1", Name: "n", Input: jsonrpc.Raw(`{"a":1.0}`),
		},
		// Nothing nests: what a tool result cannot hold is kept as it came.
		`{"type":"tool_result","toolUseId":"1","content":[{"type":"tool_result","toolUseId":"2"},` +
			`{"type":"text","text":"a"}]}`: {
			Type: "tool_result", ToolUseID: "1", Content: []spec.Content{
				{Type: "tool_result", Raw: jsonrpc.Raw(`{"type":"tool_result","toolUseId":"2"}`)},
				{Type: "text", Text: "a"},
			},
		},
	} {
		got := spec.Content{Type: "image", Data: []byte("old"), Meta: spec.Meta{"a": 1}}
		if err := jsonv2.Unmarshal([]byte(in), &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, %v", in, got, err)
		}
	}
}

func TestContentRefuses(t *testing.T) {
	for in, want := range map[string]string{
		`"text"`:                            `must be an object with a "type"`,
		`null`:                              `must be an object with a "type"`,
		`{}`:                                `must be an object with a "type"`,
		`{"type":7}`:                        `must be an object with a "type"`,
		`{"type":""}`:                       `must be an object with a "type"`,
		`{"type":"text","text":7}`:          `text: "text": must be a string`,
		`{"type":"image","data":"?"}`:       `image: "data": must be base64`,
		`{"type":"image","data":[]}`:        `image: "data": must be a string`,
		`{"type":"resource","resource":[]}`: `resource contents must be an object`,
		`{"type":"resource","resource":{"uri":[]}}`: `"uri": must be a string`,
		`{"type":"tool_result","content":{}}`:       `tool_result: "content": must be an array`,
		`{"type":"tool_result","content":[7]}`: `tool_result: "content": content must ` +
			`be an object`,
		`{"type":"text","_meta":7}`:                        `text: "_meta"`,
		`{"type":"text","text":"a","text":"b"}`:            `duplicate`,
		`{"type":"text","annotations":{"audience":"all"}}`: `text: "annotations"`,
	} {
		var c spec.Content
		if err := jsonv2.Unmarshal([]byte(in), &c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", in, err, want)
		}
	}
}

// Called by hand with what is no JSON, the decoders fail or read what is there;
// they do not panic.
func TestUnmarshalGarbage(t *testing.T) {
	for _, in := range []string{
		"", " ", "{", `{"`, `{"type"`, `{"type":`, `{"type":"text"`,
		`{"type":"text","text":}`, "[", "x",
	} {
		for _, v := range []json.Unmarshaler{
			new(spec.Content), new(spec.ResourceContents), new(spec.CallToolResult),
			new(spec.SamplingMessage), new(spec.CreateMessageResult),
		} {
			v.UnmarshalJSON([]byte(in))
		}
	}
}

func TestCallToolResult(t *testing.T) {
	for in, want := range map[string]spec.CallToolResult{
		`{"content":[]}`: {Content: []spec.Content{}},
		`{}`:             {},
		`{"content":null,"isError":true,"resultType":"complete","structuredContent":null,` +
			`"_meta":{"a":"b"},"task":{}}`: {
			IsError: true, ResultType: "complete", StructuredContent: jsonrpc.Raw("null"),
			Meta: spec.Meta{"a": "b"},
		},
		`{"structuredContent":[1.0]}`: {StructuredContent: jsonrpc.Raw("[1.0]")},
	} {
		got := spec.CallToolResult{IsError: true, Content: []spec.Content{{}}}
		if err := jsonv2.Unmarshal([]byte(in), &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, %v", in, got, err)
		}
	}
	for in, want := range map[string]string{
		`[]`:                              `tool result must be an object`,
		`{"content":{}}`:                  `tool result: "content": must be an array`,
		`{"content":[{"type":"text"},7]}`: `tool result: "content": content must be an object`,
		`{"isError":"yes"}`:               `tool result: "isError"`,
		`{"resultType":1}`:                `tool result: "resultType": must be a string`,
	} {
		var r spec.CallToolResult
		if err := jsonv2.Unmarshal([]byte(in), &r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", in, err, want)
		}
	}
}

// What is no JSON is left out by AppendJSON and reported by MarshalJSON.
func TestNoJSON(t *testing.T) {
	meta, nan := spec.Meta{"a": math.Inf(1)}, math.NaN()
	r := &spec.CallToolResult{Meta: meta, Content: []spec.Content{{
		Annotations: &spec.Annotations{Priority: &nan}, Meta: spec.Meta{"b": "c"},
	}}}
	if got, want := string(r.AppendJSON(nil)),
		`{"content":[{"type":"text","text":"","_meta":{"b":"c"}}]}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for want, v := range map[string]any{
		`"annotations"`: r,
		`"_meta"`:       spec.ResourceContents{Meta: meta},
		`member "_meta"`: struct {
			M []spec.SamplingMessage
		}{[]spec.SamplingMessage{{Meta: meta}}},
	} {
		if got, err := jsonv2.Append(nil, v); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %s, %v, want an error about %s", got, err, want)
		}
	}
}

// The content of a sampling message is written in the form in which it came.
func TestSamplingForm(t *testing.T) {
	for _, content := range []string{
		`{"type":"text","text":"a"}`,
		`[{"type":"text","text":"a"}]`,
		`[{"type":"text","text":"a"},{"type":"tool_use","id":"1","name":"n","input":{}}]`,
		`[]`,
	} {
		message := `{"role":"user","content":` + content + `}`
		roundTrip(t, []byte(message), new(spec.SamplingMessage))
		result := `{"role":"assistant","content":` + content + `,"model":"m","stopReason":"endTurn"}`
		roundTrip(t, []byte(result), new(spec.CreateMessageResult))
	}
	one := spec.SamplingMessage{Role: spec.RoleUser, Content: []spec.Content{{Text: "a"}}}
	got, err := jsonv2.Append(nil, one)
	if want := `{"role":"user","content":{"type":"text","text":"a"}}`; err != nil ||
		string(got) != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
	var m spec.SamplingMessage
	for _, bad := range []string{`{"content":7}`, `{"content":{"type":7}}`, `{"role":[]}`, `7`} {
		if err := jsonv2.Unmarshal([]byte(bad), &m); err == nil {
			t.Errorf("%s: no error", bad)
		}
	}
}

// Forms are described with a type or read into it.
func TestElicitSchema(t *testing.T) {
	const schema = `{"type":"object","properties":{` +
		`"a":{"type":"string","title":"A","minLength":1,"maxLength":9,"format":"email","default":"x"},` +
		`"b":{"type":"integer","minimum":0,"maximum":10,"default":7},` +
		`"c":{"type":"string","oneOf":[{"const":"r","title":"Red"}],"default":"r"},` +
		`"d":{"type":"array","items":{"anyOf":[{"const":"r","title":"Red"}]},"minItems":1,"maxItems":1,` +
		`"default":["r"]},` +
		`"e":{"type":"string","enum":["r"],"enumNames":["Red"]}},"required":["a"]}`
	roundTrip(t, []byte(schema), new(spec.ElicitSchema))
}

var seeds = []string{
	`{"type":"text","text":"a\ud83d\ude00\u0000"}`,
	`{"type":"image","data":"aGk=","mimeType":"image/png"}`,
	`{"type":"resource_link","uri":"x:y","name":"n","size":3,"icons":[{"src":"x:y"}]}`,
	`{"type":"resource","resource":{"uri":"x:y","blob":"aGk="}}`, `{"type":"video","x":1e400}`,
	`{"type":"tool_result","toolUseId":"1","content":[{"type":"text","text":"a"}],` +
		`"structuredContent":null}`,
	`{"type":"tool_use","id":"1","name":"n","input":{"a":1}}`,
	`{"type":"text","annotations":{"priority":1},"_meta":{"a":[1]}}`,
}

func FuzzContent(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		stable(t, in, new(spec.Content), new(spec.Content))
		stable(t, in, new(spec.SamplingMessage), new(spec.SamplingMessage))
	})
}

func FuzzCallToolResult(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(`{"content":[` + s + `],"structuredContent":{"a":1.0},"isError":true}`))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		stable(t, in, new(spec.CallToolResult), new(spec.CallToolResult))
	})
}

// stable decodes in, encodes it, and decodes that again: it is JSON and means the
// same. The bytes by hand must not make a decoder panic.
func stable(t *testing.T, in []byte, first, second json.Unmarshaler) {
	t.Helper()
	_ = second.UnmarshalJSON(in)
	if jsonv2.Unmarshal(in, first) != nil {
		return
	}
	out, err := jsonv2.Append(nil, first)
	if err != nil || jsonrpc.Valid(out) != nil {
		t.Fatalf("%s: written as %s, %v", in, out, err)
	}
	if err := jsonv2.Unmarshal(out, second); err != nil {
		t.Fatalf("%s: written as %s: %v", in, out, err)
	}
	again, err := jsonv2.Append(nil, second)
	if err != nil || string(again) != string(out) {
		t.Fatalf("%s: written as %s, then as %s, %v", in, out, again, err)
	}
}
