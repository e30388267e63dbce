package load

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Comparison is what was measured of two servers in turns.
type Comparison struct {
	A *Result `json:"a"`
	B *Result `json:"b"`
	// Ratios of B to A, by the name of a figure.
	Ratios map[string]Ratio `json:"ratios"`
	Rounds int              `json:"rounds"`
}

// Ratio is B's figure divided by A's, in each round; the quartiles say how much the rounds differ.
type Ratio struct {
	Median float64 `json:"median"`
	Low    float64 `json:"low"`  // a quarter of the rounds are below
	High   float64 `json:"high"` // a quarter of the rounds are above
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// compared names the figures that have ratios.
var compared = []string{"rate", "mean", "p50", "p90", "p99", "p99.9"}

// Compare measures two servers in rounds. In each, both get the same load one after the other, and
// the order changes from round to round, so that what disturbs the machine for a while disturbs
// both. Duration and Calls are for each server, over all rounds.
func Compare(ctx context.Context, a, b []Call, rounds int, o *Options) (*Comparison, error) {
	if rounds < 2 {
		return nil, errors.New("load: a comparison takes 2 rounds or more")
	}
	for _, calls := range [][]Call{a, b} {
		if err := o.check(len(calls)); err != nil {
			return nil, err
		}
	}
	if err := warm(ctx, a, o); err != nil {
		return nil, fmt.Errorf("a: %w", err)
	}
	if err := warm(ctx, b, o); err != nil {
		return nil, fmt.Errorf("b: %w", err)
	}
	part := *o
	part.Duration = o.Duration / time.Duration(rounds)
	if o.Calls > 0 {
		part.Calls = max(o.Calls/int64(rounds), 1)
	}
	all := [2]*recorder{newRecorder(), newRecorder()}
	ratios := map[string][]float64{}
	c := &Comparison{Ratios: map[string]Ratio{}}
	for n := 0; n < rounds && ctx.Err() == nil; n++ {
		var figures [2]map[string]float64
		for i := range 2 {
			i = (i + n) % 2
			r := newRecorder()
			phase(ctx, [][]Call{a, b}[i], &part, r)
			all[i].add(r)
			figures[i] = r.result().figures()
		}
		if ctx.Err() != nil {
			break
		}
		c.Rounds++
		for _, name := range compared {
			if figures[0][name] > 0 {
				ratios[name] = append(ratios[name], figures[1][name]/figures[0][name])
			}
		}
	}
	c.A, c.B = all[0].result(), all[1].result()
	for name, list := range ratios {
		c.Ratios[name] = spread(list)
	}
	return c, nil
}

// spread sums up ratios.
func spread(list []float64) Ratio {
	slices.Sort(list)
	return Ratio{
		Median: quantile(list, 0.5), Low: quantile(list, 0.25), High: quantile(list, 0.75),
		Min: list[0], Max: list[len(list)-1],
	}
}

// quantile interpolates in a sorted list.
func quantile(list []float64, q float64) float64 {
	at := q * float64(len(list)-1)
	i := int(at)
	if i+1 >= len(list) {
		return list[len(list)-1]
	}
	return list[i] + (at-float64(i))*(list[i+1]-list[i])
}
