package jsonv2_test

import (
	"encoding/json"
	"math/big"
	"reflect"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/internal/jsonv2"
)

func TestInteger(t *testing.T) {
	for in, want := range map[string]string{
		"0": "0", "-0": "0", "-0.0": "0", "0e9": "0", "2.0": "2", "-2.00": "-2", "1e2": "100",
		"1E+2": "100", "1.5e1": "15",
		"1200e-2": "12", "0.5e1": "5", "9007199254740993.0": "9007199254740993",
		"18446744073709551615e0": "18446744073709551615",
		"1e19":                   "10000000000000000000", "1e20": "", "1e999999999999999999999": "",
		"0e999999999999999999999": "0", "0.0000000000000000000000001e25": "1",
	} {
		got, ok := jsonv2.Integer(nil, []byte(in))
		if !ok || string(got) != want {
			t.Errorf("%s: %q, %v, want %q", in, got, ok, want)
		}
	}
	for _, in := range []string{
		"1.5", "-0.1", "1e-1", "15e-2", "1e-999999999999999999999",
		"12345678901234567890123.5",
	} {
		if got, ok := jsonv2.Integer([]byte("x"), []byte(in)); ok || string(got) != "x" {
			t.Errorf("%s: %q, %v", in, got, ok)
		}
	}
}

// Integers may be written in any way, wherever they are.
func TestUnmarshalIntegers(t *testing.T) {
	type numbers struct {
		I  int64
		U  []uint16
		M  map[string]int
		F  float64
		S  string
		P  *int
		In struct{ N int }
	}
	in := `{"I":9007199254740993.0,"U":[1.0,2e0],"M":{"1.0":1e1},"F":2.50,"S":"1.0\"1.0","P":-3.0,` +
		`"In":{"N":1.0e0}}`
	want := numbers{
		I: 9007199254740993, U: []uint16{1, 2}, M: map[string]int{"1.0": 10}, F: 2.5,
		S: `1.0"1.0`, P: new(-3),
	}
	want.In.N = 1
	for _, unmarshal := range []func([]byte, any) error{jsonv2.Unmarshal, jsonv2.UnmarshalStrict} {
		var got numbers
		if err := unmarshal([]byte(in), &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, %v", got, err)
		}
	}
	var list []int
	for in, reason := range map[string]string{
		`[1.5]`: "", `[1.0,2.5]`: "", `[1e30]`: "",
		`[2.0e18,1e19]`: "out of range",
	} {
		if err := jsonv2.Unmarshal([]byte(in), &list); err == nil ||
			jsonv2.Explain(err).Reason != reason {
			t.Errorf("%s: %v, %v", in, list, err)
		}
	}
}

// What is called an integer is one, and has its value.
func FuzzInteger(f *testing.F) {
	for _, s := range []string{"1.0", "-12e-1", "0.50e1", "1e20"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		var n json.Number
		if json.Unmarshal([]byte(in), &n) != nil || n == "" || in[0] == '"' ||
			strings.TrimSpace(in) != in {
			return
		}
		if i := strings.IndexAny(in, "eE"); i >= 0 && len(in)-i > 5 {
			return // too large for big.Rat
		}
		want, ok := new(big.Rat).SetString(in)
		if !ok {
			return
		}
		got, integer := jsonv2.Integer(nil, []byte(in))
		if integer != want.IsInt() || len(got) > 0 && string(got) != want.Num().String() {
			t.Errorf("%s: %q, %v; it is %s", in, got, integer, want)
		}
	})
}
