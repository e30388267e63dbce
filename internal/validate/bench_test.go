package validate

import (
	"strings"
	"testing"
)

const searchSchema = `{"type":"object","properties":{
	"query":{"type":"string","minLength":1,"maxLength":200},
	"unit":{"enum":["celsius","fahrenheit","kelvin"]},
	"limit":{"type":"integer","minimum":1,"maximum":100},
	"tags":{"type":"array","items":{"$ref":"#/$defs/tag"},"maxItems":10},
	"filter":{"anyOf":[{"type":"object","properties":{"from":{"type":"string"}},"additionalProperties":false},{"type":"null"}]}
	},"required":["query","unit"],"additionalProperties":false,"$defs":{"tag":{"type":"string","maxLength":20}}}`

var benchmarks = []struct{ name, schema, value string }{
	{"two numbers", sumSchema, `{"a":2,"b":3}`},
	{
		"search", searchSchema,
		`{"query":"weather in Zürich","unit":"celsius","limit":10,"tags":["a","b","c"],` +
			`"filter":{"from":"2026"}}`,
	},
	{
		"rows", `{"type":"array","items":` + sumSchema + `}`,
		"[" + strings.Repeat(`{"a":2.25,"b":-3},`, 1000) + `{"a":2,"b":3}]`,
	},
}

func BenchmarkValidate(b *testing.B) {
	for _, bench := range benchmarks {
		b.Run(bench.name, func(b *testing.B) {
			s := mustCompile(b, bench.schema)
			value := []byte(bench.value)
			b.SetBytes(int64(len(value)))
			b.ReportAllocs()
			for b.Loop() {
				if err := s.Validate(value); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkCompile(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		mustCompile(b, searchSchema)
	}
}

// A value that fits costs no memory.
func TestNoAllocs(t *testing.T) {
	for _, bench := range benchmarks {
		s := mustCompile(t, bench.schema)
		value := []byte(bench.value)
		if n := testing.AllocsPerRun(10, func() {
			if err := s.Validate(value); err != nil {
				t.Error(err)
			}
		}); n > 0 {
			t.Errorf("%s: %v allocations", bench.name, n)
		}
	}
}
