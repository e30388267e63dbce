package farcall_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
)

type (
	addends struct {
		A float64 `json:"a"`
		B float64 `json:"b"`
	}
	located struct {
		City string `json:"city"`
		Zip  *int   `json:"zip"`
	}
	// Stamped is exported, so that a pointer to it can be embedded.
	Stamped struct {
		At time.Time `json:"at"`
	}
	everything struct {
		Name    string            `json:"name"`
		Count   int8              `json:"count,omitzero"`
		Port    uint16            `json:"port" default:"80"`
		Ratio   float32           `json:"ratio,omitempty"`
		On      *bool             `json:"on"`
		Tags    []string          `json:"tags,omitempty"`
		Labels  map[string]string `json:"labels,omitempty"`
		Where   located           `json:"where,omitzero"`
		Raw     jsonrpc.Raw       `json:"raw,omitempty"`
		Any     any               `json:"any,omitempty"`
		Big     int64             `json:"big,string,omitzero"`
		Data    []byte            `json:"data,omitempty"`
		Wait    time.Duration     `json:"wait,omitzero"`
		Mode    string            `json:"mode" default:"fast"`
		List    []int             `json:"list" default:"[1,2]"`
		Hidden  string            `json:"-"`
		private string            //nolint:unused // params must not set it
	}
	inherited struct {
		located
		*Stamped
		Last bool
	}
	middle struct {
		A *int `json:"a"`
		B int  `json:"b"`
	}
	celsius  float64
	upper    string
	anything struct{ text string }
)

func (u *upper) UnmarshalText(b []byte) error {
	if len(b) == 0 {
		return errors.New("a secret")
	}
	*u = upper(strings.ToUpper(string(b)))
	return nil
}

func (a *anything) UnmarshalJSON(b []byte) error { a.text = string(b); return nil }

func TestBind(t *testing.T) {
	day := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	standard := func(change func(*everything)) everything {
		e := everything{Name: "x", Port: 80, Mode: "fast", List: []int{1, 2}}
		change(&e)
		return e
	}
	for _, test := range []struct {
		params string
		want   any
	}{
		{`{"a":1,"b":2.5}`, addends{1, 2.5}},
		{` { "b" : 2.5 , "a" : -1e2 } `, addends{-100, 2.5}},
		{`{"\u0061":1,"b":2}`, addends{1, 2}},
		{`[1,2.5]`, addends{1, 2.5}},
		{` [ 1 , 2 ] `, addends{1, 2}},
		{`{"a":1,"b":2,"_meta":{"progressToken":1}}`, addends{1, 2}},
		{`[1,2]`, &addends{1, 2}},
		{`{"name":"x"}`, standard(func(*everything) {})},
		{`["x"]`, standard(func(*everything) {})},
		{`["x",null,null,null,null,null,null,null]`, standard(func(*everything) {})},
		{`["x",-128,65535,0.5,true]`, standard(func(e *everything) {
			e.Count, e.Port, e.Ratio, e.On = -128, 65535, 0.5, new(true)
		})},
		{
			`{"name":"\u0078","tags":["a"],"labels":{"k":"v"},"where":{"city":"Oslo","zip":null},` +
				`"raw":[1.0, 2],"any":{"a":[1]},"big":"9007199254740993","data":"aGk=","wait":5,` +
				`"mode":"slow","list":[]}`,
			standard(func(e *everything) {
				e.Tags, e.Labels, e.Where = []string{"a"}, map[string]string{"k": "v"}, located{City: "Oslo"}
				e.Raw, e.Any, e.Big = jsonrpc.Raw("[1.0, 2]"), map[string]any{"a": []any{1.0}}, 9007199254740993
				e.Data, e.Wait, e.Mode, e.List = []byte("hi"), 5, "slow", []int{}
			}),
		},
		{
			`{"name":"x","count":1.2e1,"port":80.0,"raw":[1.0],"where":{"city":"Oslo","zip":1.50e2},` +
				`"list":[1.0,2e0]}`,
			standard(func(e *everything) {
				e.Count, e.Raw, e.Where = 12, jsonrpc.Raw("[1.0]"), located{"Oslo", new(150)}
			}),
		},
		{`[1e2]`, 100},
		{`{"name":"x","raw":null,"any":null,"on":null}`, standard(func(e *everything) {
			e.Raw = jsonrpc.Raw("null")
		})},
		{
			`{"city":"Oslo","zip":150,"at":"2026-01-02T03:04:05Z","Last":true}`,
			inherited{located{"Oslo", new(150)}, &Stamped{day}, true},
		},
		{
			`["Oslo",null,"2026-01-02T03:04:05Z",false]`,
			inherited{located{City: "Oslo"}, &Stamped{day}, false},
		},
		{`[null,3]`, middle{nil, 3}},
		{``, struct{}{}},
		{`{}`, struct{}{}},
		{`[]`, struct{}{}},
		{`{"_meta":{}}`, struct{}{}},
		{``, located0{}},
		{`[1,2,3]`, []float64{1, 2, 3}},
		{`[]`, []float64{}},
		{``, []float64(nil)},
		{`["a",{}]`, []any{"a", map[string]any{}}},
		{`[1,2]`, [2]int{1, 2}},
		{`{"a":1}`, map[string]int{"a": 1}},
		{``, map[string]int(nil)},
		{`[1.0]`, jsonrpc.Raw(`[1.0]`)},
		{``, jsonrpc.Raw(nil)},
		{`{"a":1.0}`, json.RawMessage(`{"a":1.0}`)},
		{`{"a":1}`, anything{`{"a":1}`}},
		{``, anything{}},
		{`[2]`, 2},
		{`["x"]`, "x"},
		{`[1.5]`, celsius(1.5)},
		{`["abc"]`, upper("ABC")},
		{`["aGk="]`, []byte("hi")},
		{`["2026-01-02T03:04:05Z"]`, day},
		{`[2]`, new(2)},
		{`[null]`, (*int)(nil)},
		{`[]`, (*int)(nil)},
		{``, (*int)(nil)},
	} {
		v := reflect.New(reflect.TypeOf(test.want))
		req := &farcall.Request{Params: jsonrpc.Raw(test.params)}
		if test.params == "" {
			req.Params = nil
		}
		if err := req.Bind(v.Interface()); err != nil {
			t.Errorf("%s into %T: %v", test.params, test.want, err)
		} else if got := v.Elem().Interface(); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: got %+v, want %+v", test.params, got, test.want)
		}
	}
}

type located0 struct {
	City string `json:"city,omitzero"`
}

func TestBindRefuses(t *testing.T) {
	for _, test := range []struct {
		params string
		v      any
		data   string
	}{
		{`{"a":1}`, addends{}, `{"member":"b","pointer":"/b","reason":"missing"}`},
		{`[1]`, addends{}, `{"member":"b","pointer":"/1","reason":"missing"}`},
		{``, addends{}, `{"member":"a","pointer":"/a","reason":"missing"}`},
		{`{}`, addends{}, `{"member":"a","pointer":"/a","reason":"missing"}`},
		{`{"a":1,"b":2,"c":3}`, addends{}, `{"member":"c","pointer":"/c","reason":"unknown"}`},
		{`{"A":1,"b":2}`, addends{}, `{"member":"A","pointer":"/A","reason":"unknown"}`},
		{`[1,2,3]`, addends{}, `{"member":2,"pointer":"/2","reason":"extra"}`},
		{`{"a":1,"b":2,"\u0061":3}`, addends{}, `{"member":"a","pointer":"/a","reason":"duplicate"}`},
		{
			`{"a":"1","b":2}`,
			addends{},
			`{"member":"a","pointer":"/a","reason":"wrong type","expected":"number","got":"string"}`,
		},
		{
			`[1,null]`,
			addends{},
			`{"member":"b","pointer":"/1","reason":"wrong type","expected":"number","got":"null"}`,
		},
		{
			`[true,2]`,
			addends{},
			`{"member":"a","pointer":"/0","reason":"wrong type","expected":"number","got":"boolean"}`,
		},
		{
			`{"a":1e400,"b":2}`,
			addends{},
			`{"member":"a","pointer":"/a","reason":"out of range","expected":"number","got":"number"}`,
		},
		{
			`{"name":1}`,
			everything{},
			`{"member":"name","pointer":"/name","reason":"wrong type","expected":"string","got":"number"}`,
		},
		{
			`["x",1.5]`,
			everything{},
			`{"member":"count","pointer":"/1","reason":"wrong type","expected":"integer","got":"number"}`,
		},
		{
			`["x",1.28e2]`,
			everything{},
			`{"member":"count","pointer":"/1","reason":"out of range","expected":"integer","got":"number"}`,
		},
		{
			`["x",1e999]`,
			everything{},
			`{"member":"count","pointer":"/1","reason":"out of range","expected":"integer","got":"number"}`,
		},
		{
			`["x",-1e-1]`,
			everything{},
			`{"member":"count","pointer":"/1","reason":"wrong type","expected":"integer","got":"number"}`,
		},
		{
			`["x",128]`,
			everything{},
			`{"member":"count","pointer":"/1","reason":"out of range","expected":"integer","got":"number"}`,
		},
		{
			`["x",1,-1]`,
			everything{},
			`{"member":"port","pointer":"/2","reason":"wrong type","expected":"integer","got":"number"}`,
		},
		{
			`{"name":"x","on":"yes"}`,
			everything{},
			`{"member":"on","pointer":"/on","reason":"wrong type","expected":"boolean","got":"string"}`,
		},
		{
			`{"name":"x","tags":["a",5]}`,
			everything{},
			`{"member":"tags","pointer":"/tags/1","reason":"wrong type","expected":"string",` +
				`"got":"number"}`,
		},
		{
			`{"name":"x","tags":{}}`,
			everything{},
			`{"member":"tags","pointer":"/tags","reason":"wrong type","expected":"array","got":"object"}`,
		},
		{
			`{"name":"x","where":{"city":"a","zap":1}}`,
			everything{},
			`{"member":"where","pointer":"/where/zap","reason":"unknown"}`,
		},
		{
			`["x",0,0,0,null,[],{},{"city":5}]`,
			everything{},
			`{"member":"where","pointer":"/7/city","reason":"wrong type","expected":"string",` +
				`"got":"number"}`,
		},
		{
			`{"name":"x","labels":{"a":"1","a":"2"}}`,
			everything{},
			`{"member":"labels","pointer":"/labels/a","reason":"duplicate"}`,
		},
		{
			`{"name":"x","big":5}`,
			everything{},
			`{"member":"big","pointer":"/big","reason":"wrong type","expected":"integer","got":"number"}`,
		},
		{
			`{"name":"x","data":"%"}`,
			everything{},
			`{"member":"data","pointer":"/data","reason":"invalid value"}`,
		},
		{
			`{"name":"x","private":""}`,
			everything{},
			`{"member":"private","pointer":"/private","reason":"unknown"}`,
		},
		{
			`{"name":"x","Hidden":""}`,
			everything{},
			`{"member":"Hidden","pointer":"/Hidden","reason":"unknown"}`,
		},
		{
			`["a",1,"yesterday",true]`,
			inherited{},
			`{"member":"at","pointer":"/2","reason":"invalid value"}`,
		},
		{
			`["a",1,true,true]`,
			inherited{},
			`{"member":"at","pointer":"/2","reason":"wrong type","expected":"string","got":"boolean"}`,
		},
		{`[3]`, middle{}, `{"member":"b","pointer":"/1","reason":"missing"}`},
		{`{"a":1}`, struct{}{}, `{"member":"a","pointer":"/a","reason":"unknown"}`},
		{`[1]`, struct{}{}, `{"member":0,"pointer":"/0","reason":"extra"}`},
		{
			`[1,"x"]`,
			[]float64{},
			`{"member":1,"pointer":"/1","reason":"wrong type","expected":"number","got":"string"}`,
		},
		{
			`[{"city":1}]`,
			[]located{},
			`{"member":0,"pointer":"/0/city","reason":"wrong type","expected":"string","got":"number"}`,
		},
		{`{"a":1}`, []float64{}, `{"reason":"wrong type","expected":"array","got":"object"}`},
		{`[1]`, map[string]int{}, `{"reason":"wrong type","expected":"object","got":"array"}`},
		{
			`{"a":"x"}`,
			map[string]int{},
			`{"member":"a","pointer":"/a","reason":"wrong type","expected":"integer","got":"string"}`,
		},
		{`[1,2]`, 0, `{"member":1,"pointer":"/1","reason":"extra"}`},
		{`[]`, 0, `{"member":0,"pointer":"/0","reason":"missing"}`},
		{``, 0, `{"member":0,"pointer":"/0","reason":"missing"}`},
		{
			`["x"]`, 0,
			`{"member":0,"pointer":"/0","reason":"wrong type","expected":"integer","got":"string"}`,
		},
		{
			`[null]`, 0,
			`{"member":0,"pointer":"/0","reason":"wrong type","expected":"integer","got":"null"}`,
		},
		{`{"x":1}`, 0, `{"reason":"wrong type","expected":"array","got":"object"}`},
		{`[""]`, upper(""), `{"member":0,"pointer":"/0","reason":"invalid value"}`},
		{
			`{"` + strings.Repeat("x", 10_000) + `":1}`,
			addends{},
			`{"member":"` + strings.Repeat("x", 256) + `","pointer":"/` + strings.Repeat("x", 255) +
				`","reason":"unknown"}`,
		},
	} {
		v := reflect.New(reflect.TypeOf(test.v))
		req := &farcall.Request{Params: jsonrpc.Raw(test.params)}
		err := req.Bind(v.Interface())
		var wire *jsonrpc.Error
		if !errors.As(err, &wire) {
			t.Errorf("%s into %T: got %v, want InvalidParams", test.params, test.v, err)
			continue
		}
		if wire.Code != jsonrpc.InvalidParams || wire.Message != "Invalid params" ||
			string(wire.Data) != test.data {
			t.Errorf("%.100s into %T: got %d %s %.300s, want %.300s", test.params, test.v, int(wire.Code),
				wire.Message, wire.Data, test.data)
		}
	}
}

// What is wrong with the target is no fault of the caller.
func TestBindTarget(t *testing.T) {
	var stringer fmt.Stringer
	for _, v := range []any{
		nil,
		addends{},
		(*addends)(nil), &stringer, new(chan int),
		new(struct{ A func() }),
	} {
		err := (&farcall.Request{}).Bind(v)
		if err == nil || errors.Is(err, jsonrpc.InvalidParams) {
			t.Errorf("%T: got %v", v, err)
		}
	}
}

func TestBindKeepsWhatIsLeftOut(t *testing.T) {
	v := everything{Count: 7, Mode: "slow"}
	if err := (&farcall.Request{Params: jsonrpc.Raw(`{"name":"x"}`)}).Bind(&v); err != nil {
		t.Fatal(err)
	}
	if v.Count != 7 || v.Mode != "fast" {
		t.Errorf("got %+v", v)
	}
}

// The memory of a request ends with its handler; what was bound does not.
func TestBindCopies(t *testing.T) {
	params := jsonrpc.Raw(`{"name":"abc","raw":[1],"tags":["x"]}`)
	var v everything
	if err := (&farcall.Request{Params: params}).Bind(&v); err != nil {
		t.Fatal(err)
	}
	clear(params)
	if v.Name != "abc" || string(v.Raw) != "[1]" || v.Tags[0] != "x" {
		t.Errorf("got %+v", v)
	}
}

// A struct with more parameters than are looked for one by one.
func TestBindMany(t *testing.T) {
	var fields []reflect.StructField
	var byName, byPosition []string
	for i := range 100 {
		name := fmt.Sprintf("F%d", i)
		fields = append(fields, reflect.StructField{Name: name, Type: reflect.TypeFor[int]()})
		byName = append([]string{fmt.Sprintf("%q:%d", name, i)}, byName...)
		byPosition = append(byPosition, fmt.Sprint(i))
	}
	typ := reflect.StructOf(fields)
	for _, params := range []string{
		"{" + strings.Join(byName, ",") + "}",
		"[" + strings.Join(byPosition, ",") + "]",
	} {
		v := reflect.New(typ)
		if err := (&farcall.Request{Params: jsonrpc.Raw(params)}).Bind(v.Interface()); err != nil {
			t.Fatal(err)
		}
		for i := range 100 {
			if got := v.Elem().Field(i).Int(); got != int64(i) {
				t.Errorf("F%d is %d", i, got)
			}
		}
	}
}

// By name and by position are two ways to say the same.
func FuzzBind(f *testing.F) {
	for _, s := range []string{
		`["x",1,2,0.5,true,["a"],{"k":"v"},{"city":"Oslo","zip":1},[1.0],{"a":null},"5","aGk=",7,` +
			`"slow",[3]]`,
		`["x"]`, `[]`, `[null,null]`, `["x",1.5]`, `["\ud800",-0]`, `["x",0,0,1e39]`,
		`["x",0,0,0,null,null,null,{"city":"a","city":"b"}]`,
		`[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]`, `{"name":"x"}`, `{"_meta":1}`, `7`, `[`, `{"a"`,
	} {
		f.Add([]byte(s))
	}
	names := strings.Fields(
		"name count port ratio on tags labels where raw any big data wait mode list")
	bind := func(params []byte) (v everything, data string, err error) {
		err = (&farcall.Request{Params: params}).Bind(&v)
		if wire, ok := errors.AsType[*jsonrpc.Error](err); ok {
			data = string(wire.Data)
		}
		return v, data, err
	}
	f.Fuzz(func(t *testing.T, params []byte) {
		for _, v := range []any{
			new(addends), new(inherited), new([]float64), new(map[string]any),
			new(any), new(string), new(struct{}),
		} {
			_ = (&farcall.Request{Params: params}).Bind(v)
		}
		listed, listedData, listedErr := bind(params)
		var list []json.RawMessage
		if json.Unmarshal(params, &list) != nil || len(list) > len(names) || len(list) == 0 {
			return
		}
		object := []byte{}
		for i, v := range list {
			object = fmt.Appendf(object, ",%q:%s", names[i], v)
		}
		object[0] = '{'
		named, namedData, namedErr := bind(append(object, '}'))
		if (listedErr == nil) != (namedErr == nil) {
			t.Fatalf("%s: by position %v, by name %v", params, listedErr, namedErr)
		}
		if listedErr == nil && !reflect.DeepEqual(listed, named) {
			t.Fatalf("%s: by position %+v, by name %+v", params, listed, named)
		}
		if !strings.Contains(listedData, "pointer") && listedData != namedData {
			t.Fatalf("%s: by position %s, by name %s", params, listedData, namedData)
		}
	})
}

func BenchmarkBind(b *testing.B) {
	m := farcall.NewMux()
	farcall.Handle(m, "add", func(_ context.Context, p addends) (float64, error) {
		return p.A + p.B, nil
	})
	for name, params := range map[string]string{"name": `{"a":1.5,"b":2}`, "position": `[1.5,2]`} {
		b.Run(name, func(b *testing.B) {
			req := &farcall.Request{Method: "add", Params: jsonrpc.Raw(params)}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := m.ServeRPC(b.Context(), req); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
