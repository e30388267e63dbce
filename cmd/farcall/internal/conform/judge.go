package conform

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A Case is one thing that is sent and what must come back.
type Case struct {
	Name  string
	Title string
	Ref   string
	Level Level

	sends []string // the frames; $none and $echo stand for methods
	// want is what must come back: nothing, one answer, or with array several
	// in one array. Without array, several are separate.
	want  []want
	array bool

	v1ok     bool     // an answer in the form of JSON-RPC 1.0 is as good
	needs    []string // example methods
	echo     bool     // needs an echo method
	payload  string   // the params it must return
	on       []string // transports it is for; none: all
	notOn    []string
	notOnWhy string
	write    writing // how the frames are put on a stream
}

// writing is how frames go onto a byte stream.
type writing int

const (
	apart   writing = iota // each in its own write
	joined                 // all in one write
	pieces                 // a byte at a time
	headers                // with unusual but valid headers
	inTurn                 // each when the one before is answered
)

// want is one answer that must come back.
type want struct {
	id      string // raw JSON; the bytes must be the same
	codes   []int  // the error codes that are right, the usual one first; none: a result
	also    []int  // codes that break no rule but are not what was recommended
	nullID  bool   // so is an id of null
	result  string // the value of the result; "": any
	bytes   bool   // the result must have the same bytes
	message string // the specification's text, compared with Options.S1
}

func (w want) String() string {
	switch {
	case w.message != "":
		return fmt.Sprintf("error %d %q with id %s", w.codes[0], w.message, w.id)
	case len(w.codes) > 0:
		texts := make([]string, len(w.codes))
		for i, c := range w.codes {
			texts[i] = strconv.Itoa(c)
		}
		return fmt.Sprintf("error %s with id %s", strings.Join(texts, " or "), w.id)
	case w.result != "":
		return fmt.Sprintf("result %s with id %s", clip(w.result), w.id)
	}
	return "a result with id " + w.id
}

// expected says in words what the case waits for.
func (c *Case) expected(s1 bool) string {
	if len(c.want) == 0 {
		return "no answer"
	}
	texts := make([]string, len(c.want))
	for i, w := range c.want {
		if !s1 {
			w.message = ""
		}
		texts[i] = w.String()
	}
	text := strings.Join(texts, "; ")
	if c.array {
		text = "one array: " + text
	}
	return text
}

// finding says what is wrong, and how bad it is.
type finding struct {
	text  string
	level Level
}

func (c *Case) findf(format string, args ...any) *finding {
	return &finding{fmt.Sprintf(format, args...), c.Level}
}

// judge compares what came back with what must. It returns nil when all holds.
func judge(c *Case, ev *evidence, s1 bool) *finding {
	if f := judgeAnswers(c, ev, s1); f != nil {
		return f
	}
	switch {
	case ev.closed:
		return &finding{"the connection was closed afterwards; one bad message should not end it", Should}
	case ev.err != "":
		return c.findf("%s", ev.err)
	case len(c.want) == 0 && ev.status >= 300:
		return &finding{
			fmt.Sprintf("HTTP status %d for what needs no answer; 204 or 202 says that it was taken",
				ev.status), Should,
		}
	case len(c.want) > 0 && ev.contentType != "" && !jsonType(ev.contentType):
		return &finding{
			fmt.Sprintf("the answer's Content-Type is %q, not application/json", ev.contentType), Should,
		}
	}
	return nil
}

func judgeAnswers(c *Case, ev *evidence, s1 bool) *finding {
	var got []answer
	arrays := 0
	for _, f := range ev.frames {
		answers, array, err := parseAnswers(f)
		if err != nil {
			return &finding{err.Error(), Must}
		}
		got = append(got, answers...)
		if array {
			arrays++
		}
	}
	switch {
	case len(c.want) == 0 && len(got) > 0:
		return c.findf("answered with %s", got[0])
	case len(c.want) == 0:
		return nil
	case len(got) == 0 && ev.closed:
		return c.findf("the connection was closed without an answer")
	case len(got) == 0:
		return c.findf("no answer")
	}
	if f := match(c, got, s1); f != nil {
		return f
	}
	switch {
	case c.array && (arrays != 1 || len(ev.frames) != 1):
		return c.findf("the answers came apart, not in one array")
	case !c.array && arrays > 0:
		return c.findf("the answer came in an array")
	}
	return nil
}

// match finds for each wanted answer the one that came. The order is free
// (JSON-RPC 2.0 §6).
func match(c *Case, got []answer, s1 bool) *finding {
	if len(c.want) == 1 && len(got) == 1 {
		return compare(c, c.want[0], got[0], s1)
	}
	left := slices.Clone(got)
	var worst *finding
	for _, w := range c.want {
		best := -1
		var why *finding
		for i, a := range left {
			f := compare(c, w, a, s1)
			if f == nil {
				best, why = i, nil
				break
			}
			if best < 0 && f.level == Should && c.Level == Must {
				best, why = i, f
			}
		}
		if best < 0 {
			if !s1 {
				w.message = ""
			}
			return c.findf("missing: %s; came: %s", w, join(left))
		}
		if why != nil && worst == nil {
			worst = why
		}
		left = slices.Delete(left, best, best+1)
	}
	if len(left) > 0 {
		return c.findf("more answers than requests: %s", join(left))
	}
	return worst
}

func join(answers []answer) string {
	if len(answers) == 0 {
		return "nothing"
	}
	var texts []string
	for i, a := range answers {
		if i == 5 {
			texts = append(texts, fmt.Sprintf("and %d more", len(answers)-i))
			break
		}
		texts = append(texts, a.String())
	}
	return strings.Join(texts, "; ")
}

// compare judges one answer against what was wanted.
func compare(c *Case, w want, a answer, s1 bool) *finding {
	if a.v1 && !c.v1ok {
		return &finding{`the answer has no "jsonrpc":"2.0"`, Must}
	}
	outcome, id := compareOutcome(c, w, a, s1), compareID(c, w, a)
	if outcome == nil || id != nil && id.level == Must && outcome.level != Must {
		return id
	}
	return outcome
}

func compareOutcome(c *Case, w want, a answer, s1 bool) *finding {
	switch {
	case len(w.codes) == 0:
		return compareResult(c, w, a)
	case a.v1 && c.v1ok:
	case a.code == 0:
		return c.findf("answered with a result (%s), not with error %d", clip(a.result), w.codes[0])
	case slices.Contains(w.codes, a.code):
		if s1 && w.message != "" && a.message != w.message {
			return &finding{fmt.Sprintf("the error's message is %q, not %q", a.message, w.message), Must}
		}
	case slices.Contains(w.also, a.code):
		return &finding{fmt.Sprintf("error %d, where %d says what is wrong", a.code, w.codes[0]), Should}
	default:
		return c.findf("error %d, not %d", a.code, w.codes[0])
	}
	return nil
}

func compareID(c *Case, w want, a answer) *finding {
	switch {
	case a.id == w.id:
		return nil
	case w.nullID && a.id == "null":
		return &finding{fmt.Sprintf("the id could be read (%s), but came back as null", w.id), Should}
	case sameValue(a.id, w.id):
		return &finding{
			fmt.Sprintf("the id %s came back as %s: the same value in other bytes", w.id, clip(a.id)),
			Should,
		}
	}
	return c.findf("the id came back as %s, not as %s", clip(a.id), w.id)
}

func compareResult(c *Case, w want, a answer) *finding {
	switch {
	case a.code != 0:
		return c.findf("error %d %q, not a result", a.code, a.message)
	case w.result == "":
	case w.bytes && a.result != w.result:
		return c.findf("the result is %s: other bytes than %s", clip(a.result), clip(w.result))
	case !sameValue(a.result, w.result):
		return c.findf("the result is %s, not %s", clip(a.result), clip(w.result))
	}
	return nil
}
