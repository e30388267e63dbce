package conform

import (
	"context"
	"encoding/json" //nolint:depguard // shares nothing with what it checks
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// errUnanswered means that the server does not answer a plain request.
var errUnanswered = errors.New("no answer to a plain request")

// learn finds out what the server can be asked: which request it answers
// reliably (the sentinel), whether it echoes, which example methods it has.
func (r *runner) learn(ctx context.Context) error {
	if err := r.findSentinel(ctx); err != nil {
		return err
	}
	r.missing = map[string]bool{}
	for method, params := range map[string]string{"subtract": "[42,23]", "sum": "[1,2,4]", "get_data": "[]"} {
		a, ok := r.ask(ctx, method, params)
		r.missing[method] = ok && a.code == codeMethodNotFound
	}
	r.findEcho(ctx)
	return nil
}

// findSentinel settles on the request that shows that the server is alive.
// A server that is wrong in one way must not look wrong in all.
func (r *runner) findSentinel(ctx context.Context) error {
	methods := []string{noMethod}
	if r.opts.Echo != "" {
		methods = append(methods, r.opts.Echo)
	}
	methods = append(methods, "rpc.discover")
	var first error
	timeout := r.opts.Timeout
	for _, m := range methods {
		for _, quoted := range []bool{true, false} {
			err := r.wire.useSentinel(ctx, m, quoted, timeout)
			switch {
			case err == nil:
				return nil
			case ctx.Err() != nil:
				return ctx.Err()
			case first == nil:
				first = err
			}
			timeout = min(timeout, time.Second) // it has had the time to start
		}
	}
	return fmt.Errorf("%w: %w", errUnanswered, first)
}

// ask makes one ordinary call.
func (r *runner) ask(ctx context.Context, method, params string) (answer, bool) {
	id := fmt.Sprintf(`"farcall-ask-%s"`, method)
	send := fmt.Sprintf(`{"jsonrpc":"2.0","method":%q,"params":%s,"id":%s}`, method, params, id)
	ev := r.wire.probe(ctx, &Case{sends: []string{send}, want: []want{{id: id}}}, r.opts.Timeout)
	for _, f := range ev.frames {
		got, _, err := parseAnswers(f)
		if err == nil && len(got) == 1 && sameValue(got[0].id, id) {
			return got[0], true
		}
	}
	return answer{}, false
}

// findEcho looks for a method that returns its params.
func (r *runner) findEcho(ctx context.Context) {
	candidates := []string{"echo"}
	if r.opts.Echo != "" {
		candidates = []string{r.opts.Echo}
	} else if a, ok := r.ask(ctx, "rpc.discover", "[]"); ok && a.code == 0 {
		candidates = append(candidates, echoNames(a.result)...)
	}
	for _, m := range candidates {
		a, ok := r.ask(ctx, m, `["farcall"]`)
		switch {
		case !ok || a.code != 0:
			continue
		case sameValue(a.result, `["farcall"]`):
			r.echo = m
		case sameValue(a.result, `"farcall"`):
			r.echo, r.echoOne = m, true
		default:
			continue
		}
		return
	}
	r.noEcho = fmt.Sprintf("no method that returns its params (tried %s; --echo METHOD names one)", strings.Join(candidates, ", "))
}

// echoNames finds the methods of an OpenRPC document that sound like an echo.
func echoNames(doc string) []string {
	var d struct {
		Methods []struct {
			Name string `json:"name"`
		} `json:"methods"`
	}
	if json.Unmarshal([]byte(doc), &d) != nil {
		return nil
	}
	var names []string
	for _, m := range d.Methods {
		word := strings.ToLower(m.Name[strings.LastIndexAny(m.Name, "/._")+1:])
		if word == "echo" && m.Name != "echo" {
			names = append(names, m.Name)
		}
	}
	return names
}

// prepare returns the case with what was learned filled in, and why it cannot
// be run, if it cannot. Ids that are not the point are not used twice: some
// servers never forget one.
func (r *runner) prepare(c Case) (filled Case, skip string) {
	switch {
	case len(c.on) > 0 && !slices.Contains(c.on, r.report.Transport):
		skip = "not for this transport"
	case slices.Contains(c.notOn, r.report.Transport):
		skip = c.notOnWhy
	case c.echo && r.echo == "":
		skip = r.noEcho
	}
	for _, m := range c.needs {
		if r.missing[m] && !r.opts.S1 {
			skip = fmt.Sprintf("the server has no method %q", m)
			break
		}
	}
	r.ids += 2
	fill := strings.NewReplacer("$none", noMethod, "$echo", r.echo, "$id2", strconv.Itoa(r.ids), "$id", strconv.Itoa(r.ids-1))
	c.sends, c.want = slices.Clone(c.sends), slices.Clone(c.want)
	for i, s := range c.sends {
		s = fill.Replace(s)
		if c.echo && r.echoOne {
			s = strings.Replace(s, `"params":`+c.payload, `"params":[`+c.payload+`]`, 1)
		}
		c.sends[i] = s
	}
	for i := range c.want {
		c.want[i].id = fill.Replace(c.want[i].id)
	}
	return c, skip
}
