package playground

import (
	"context"
	"iter"
	"math"

	"github.com/farcall-dev/farcall"
)

// maxCount bounds how far math/add_stream counts.
const maxCount = 10_000

type pair struct {
	A float64 `json:"a" doc:"the first number"`
	B float64 `json:"b" doc:"the second number"`
}

type difference struct {
	Minuend    float64 `json:"minuend" doc:"what is subtracted from"`
	Subtrahend float64 `json:"subtrahend" doc:"what is subtracted"`
}

type root struct {
	X float64 `json:"x" doc:"a number that is not negative"`
}

func registerMath(mux *farcall.Mux) {
	farcall.Handle(mux, "math/add", func(_ context.Context, p pair) (float64, error) { return finite(p.A + p.B) },
		"Add two numbers")
	farcall.Handle(mux, "math/subtract", func(_ context.Context, p pair) (float64, error) { return finite(p.A - p.B) },
		"Subtract b from a")
	farcall.Handle(mux, "math/multiply", func(_ context.Context, p pair) (float64, error) { return finite(p.A * p.B) },
		"Multiply two numbers")
	farcall.Handle(mux, "math/sqrt", sqrt,
		"Take the square root",
		"A negative number is refused with the application error -32001.")
	farcall.HandleStream(mux, "math/add_stream", addStream,
		"Count from 0 to a + b",
		"The sum must be a whole number from 0 to 10000.")
	farcall.Handle(mux, "subtract", subtract, "Subtract, as in the examples of the specification")
	farcall.Handle(mux, "sum", sum,
		"Add any number of numbers, given by position")
}

// finite refuses a result that JSON cannot express.
func finite(v float64) (float64, error) {
	if math.IsInf(v, 0) || math.IsNaN(v) {
		return 0, invalid("result", "is beyond the range of a 64-bit float")
	}
	return v, nil
}

func subtract(_ context.Context, p difference) (float64, error) {
	return finite(p.Minuend - p.Subtrahend)
}

func sqrt(_ context.Context, p root) (float64, error) {
	if p.X < 0 {
		return 0, invalid("x", "must not be negative")
	}
	return math.Sqrt(p.X), nil
}

func addStream(ctx context.Context, p pair) iter.Seq2[int, error] {
	return func(yield func(int, error) bool) {
		result := p.A + p.B
		if result != math.Trunc(result) || result < 0 || result > maxCount {
			yield(0, invalid("result", "a + b must be a whole number from 0 to 10000, to be counted to"))
			return
		}
		for i := range int(result) + 1 {
			if err := ctx.Err(); err != nil {
				yield(0, err)
				return
			}
			if !yield(i, nil) {
				return
			}
		}
	}
}

func sum(_ context.Context, numbers []float64) (float64, error) {
	total := 0.0
	for _, n := range numbers {
		total += n
	}
	return finite(total)
}
