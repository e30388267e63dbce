package load

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Limit is a condition under which a measurement has failed, such as p99>20ms.
type Limit struct {
	Text   string
	of     string // "", "b" or "ratio"
	figure string
	above  bool // it fails above the value, otherwise below
	equal  bool // it also fails at the value
	value  float64
}

var limitForm = regexp.MustCompile(`^(?:(a|b|ratio)\.)?([a-z0-9.]+)(>=|<=|>|<)(.+)$`)

// ParseLimit reads FIGURE>VALUE or FIGURE<VALUE. A figure is a latency (a duration), rate (calls a
// second) or errors (a share: 0.01 or 1%). Of a comparison, a.FIGURE and b.FIGURE are one server's,
// ratio.FIGURE is B's divided by A's, and a FIGURE alone is B's.
func ParseLimit(text string) (l Limit, err error) {
	m := limitForm.FindStringSubmatch(strings.ReplaceAll(text, " ", ""))
	if m == nil {
		return l, fmt.Errorf("%q is not FIGURE>VALUE or FIGURE<VALUE", text)
	}
	l = Limit{Text: m[0], of: m[1], figure: m[2], above: m[3][0] == '>', equal: len(m[3]) == 2}
	if names := figureNames(); !slices.Contains(names, l.figure) {
		return l, fmt.Errorf("%q: there is no figure %q; there are %s", text, l.figure,
			strings.Join(names, ", "))
	}
	switch {
	case l.of == "ratio" && !slices.Contains(compared, l.figure):
		return l, fmt.Errorf("%q: there is no ratio of %s; there are %s", text, l.figure,
			strings.Join(compared, ", "))
	case l.of == "ratio", l.figure == "rate":
		l.value, err = strconv.ParseFloat(m[4], 64)
	case l.figure == "errors":
		number, percent := strings.CutSuffix(m[4], "%")
		if l.value, err = strconv.ParseFloat(number, 64); percent {
			l.value /= 100
		}
	default:
		var d time.Duration
		d, err = time.ParseDuration(m[4])
		l.value = milliseconds(float64(d))
	}
	if err != nil {
		return l, fmt.Errorf("%q: %q is not a value of %s", text, m[4], l.figure)
	}
	return l, nil
}

// OfTwo reports whether the limit is about a comparison.
func (l *Limit) OfTwo() bool { return l.of != "" }

// exceeds reports whether a value breaks the limit.
func (l *Limit) exceeds(v float64) bool {
	return l.equal && v == l.value || l.above && v > l.value || !l.above && v < l.value
}

// Broken returns what a result says against the limits, a sentence for each.
func Broken(limits []Limit, r *Result) (list []string) {
	for i := range limits {
		if l := &limits[i]; l.of != "" {
			list = append(list, l.Text+": there is one server only")
		} else if v := r.figures()[l.figure]; l.exceeds(v) {
			list = append(list, fmt.Sprintf("%s: it is %s", l.Text, l.show(v)))
		}
	}
	return list
}

// BrokenOf is Broken for a comparison.
func BrokenOf(limits []Limit, c *Comparison) (list []string) {
	for i := range limits {
		l := &limits[i]
		var v float64
		switch l.of {
		case "a":
			v = c.A.figures()[l.figure]
		case "ratio":
			ratio, ok := c.Ratios[l.figure]
			if !ok {
				list = append(list, l.Text+": no round has measured it")
				continue
			}
			v = ratio.Median
		default:
			v = c.B.figures()[l.figure]
		}
		if l.exceeds(v) {
			list = append(list, fmt.Sprintf("%s: it is %s", l.Text, l.show(v)))
		}
	}
	return list
}

// show writes a value as a limit has it.
func (l *Limit) show(v float64) string {
	switch {
	case l.of == "ratio":
		return strconv.FormatFloat(v, 'f', 3, 64)
	case l.figure == "rate":
		return strconv.FormatFloat(v, 'f', 1, 64)
	case l.figure == "errors":
		return strconv.FormatFloat(100*v, 'f', 3, 64) + "%"
	}
	return Milliseconds(v)
}

// Milliseconds writes a latency with three digits at least.
func Milliseconds(ms float64) string {
	return time.Duration(ms * float64(time.Millisecond)).Round(roundTo(ms)).String()
}

// roundTo keeps four digits or so.
func roundTo(ms float64) time.Duration {
	unit := time.Nanosecond
	for d := time.Duration(ms * float64(time.Millisecond)); d >= 10000; d /= 10 {
		unit *= 10
	}
	return unit
}
