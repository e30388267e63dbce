package farcall_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
)

type bounded struct {
	Count int       `json:"count" min:"1" max:"10"`
	Color string    `json:"color,omitzero" enum:"red,green"`
	Code  string    `json:"code" pattern:"^[a-z]+$" default:"abc"`
	Tags  []string  `json:"tags,omitzero" max:"2" pattern:"^t"`
	Ratio *float64  `json:"ratio" min:"0"`
	Spots []located `json:"spots,omitzero"`
	Deep  struct {
		Level int    `json:"level" min:"1"`
		Note  string `json:"note,omitzero" enum:"a,b"`
	} `json:"deep,omitzero"`
	Named []string `json:"named,omitzero" minLength:"2" uniqueItems:"true"`
	Own   side     `json:"own,omitzero"`
}

// A side has a schema that its Go type does not tell of.
type side string

func (side) JSONSchema() string { return `{"enum":["left","right"]}` }

// What the published schema says of params is enforced.
func TestBindEnforcesSchema(t *testing.T) {
	for _, test := range []struct {
		params string
		v      any
		data   string // "": they fit
	}{
		{`{"count":10}`, bounded{}, ``},
		{`[1.0e1,"red","x",["t1","t2"],0,[{"city":"Oslo"}],{"level":1.0,"note":"b"}]`, bounded{}, ``},
		{
			`{"count":1,"color":null,"code":null,"tags":null,"ratio":null,"spots":null,"deep":null}`,
			bounded{},
			``,
		},
		{
			`{"count":1,"spots":[{"city":"Oslo","zip":null}],"deep":{"level":1,"note":null}}`,
			bounded{},
			``,
		},
		{
			`{"count":0}`,
			bounded{},
			`{"member":"count","pointer":"/count","reason":"out of range","message":"0 is less than the ` +
				`minimum 1"}`,
		},
		{
			`[11]`,
			bounded{},
			`{"member":"count","pointer":"/0","reason":"out of range","message":"11 is greater than the ` +
				`maximum 10"}`,
		},
		{
			`{"count":1,"color":"blue"}`,
			bounded{},
			`{"member":"color","pointer":"/color","reason":"invalid value","message":"\"blue\" is not one ` +
				`of \"red\", \"green\""}`,
		},
		{
			`{"count":1,"code":"7"}`,
			bounded{},
			`{"member":"code","pointer":"/code","reason":"invalid value","message":"\"7\" does not match ` +
				`the pattern ^[a-z]+$"}`,
		},
		{
			`{"count":1,"tags":["t","t","t"]}`,
			bounded{},
			`{"member":"tags","pointer":"/tags","reason":"out of range","message":"has 3 items, the ` +
				`maximum is 2"}`,
		},
		{
			`{"count":1,"tags":["t","x"]}`,
			bounded{},
			`{"member":"tags","pointer":"/tags/1","reason":"invalid value","message":"item [1]: \"x\" ` +
				`does not match the pattern ^t"}`,
		},
		{
			`{"count":1,"ratio":-0.5}`,
			bounded{},
			`{"member":"ratio","pointer":"/ratio","reason":"out of range","message":"-0.5 is less than ` +
				`the minimum 0"}`,
		},
		{
			`{"count":1,"spots":[{}]}`,
			bounded{},
			`{"member":"spots","pointer":"/spots/0/city","reason":"missing","message":"item [0]: missing ` +
				`property \"city\""}`,
		},
		{
			`{"count":1,"spots":[null]}`,
			bounded{},
			`{"member":"spots","pointer":"/spots/0","reason":"wrong type","message":"item [0]: got null, ` +
				`want object"}`,
		},
		{
			`{"count":1,"deep":{"level":0}}`,
			bounded{},
			`{"member":"deep","pointer":"/deep/level","reason":"out of range","message":"property ` +
				`\"level\": 0 is less than the minimum 1"}`,
		},
		{
			`{"count":1,"deep":{"level":null}}`,
			bounded{},
			`{"member":"deep","pointer":"/deep/level","reason":"wrong type","message":"property ` +
				`\"level\": got null, want integer"}`,
		},
		{`{"count":1,"named":["ab","cd"],"own":"left"}`, bounded{}, ``},
		{
			`{"count":1,"named":["ab","c"]}`,
			bounded{},
			`{"member":"named","pointer":"/named/1","reason":"out of range","message":"item [1]: has 1 ` +
				`character, the minimum is 2"}`,
		},
		{
			`{"count":1,"named":["ab","ab"]}`,
			bounded{},
			`{"member":"named","pointer":"/named","reason":"invalid value","message":"items 0 and 1 are ` +
				`equal, each must be different"}`,
		},
		{
			`{"count":1,"own":"up"}`,
			bounded{},
			`{"member":"own","pointer":"/own","reason":"invalid value","message":"\"up\" is not one of ` +
				`\"left\", \"right\""}`,
		},
		{
			`[1,null]`,
			[]float64{},
			`{"member":1,"pointer":"/1","reason":"wrong type","message":"item [1]: got null, want number"}`,
		},
		{
			`[{"city":"a"},{"zip":1}]`,
			[]located{},
			`{"member":1,"pointer":"/1/city","reason":"missing","message":"item [1]: missing ` +
				`property \"city\""}`,
		},
		{
			`{"x":{"zip":1}}`,
			map[string]located{},
			`{"member":"x","pointer":"/x/city","reason":"missing","message":"property \"x\": missing ` +
				`property \"city\""}`,
		},
	} {
		err := (&farcall.Request{Params: jsonrpc.Raw(test.params)}).Bind(
			reflect.New(reflect.TypeOf(test.v)).Interface())
		var wire *jsonrpc.Error
		switch {
		case test.data == "" && err == nil:
		case !errors.As(err, &wire) || wire.Code != jsonrpc.InvalidParams ||
			string(wire.Data) != test.data:
			t.Errorf("%s into %T: %v, want %s", test.params, test.v, err, test.data)
			if wire != nil {
				t.Logf("got %s", wire.Data)
			}
		}
	}
	if err := (&farcall.Request{}).Bind(&struct {
		A int `default:"0" min:"1"`
	}{}); err == nil || errors.Is(err, jsonrpc.InvalidParams) ||
		!strings.Contains(err.Error(), "default") {
		t.Errorf("a default that does not fit: %v", err)
	}
}
