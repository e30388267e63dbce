package main

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// maxAuditLine is far longer than a line of an audit may be.
const maxAuditLine = 1 << 20

// auditLine is a line of an audit, as far as it is about a decision. Other members are passed over:
// the format grows.
type auditLine struct {
	Time      time.Time   `json:"time"`
	Decision  string      `json:"decision"`
	Principal string      `json:"principal"`
	Kind      string      `json:"kind"`
	Method    string      `json:"method"`
	Issuer    string      `json:"issuer"`
	Roles     *[]string   `json:"roles"`
	Scopes    *[]string   `json:"scopes"`
	Address   string      `json:"address"`
	Transport string      `json:"transport"`
	Call      string      `json:"call"`
	Upstream  string      `json:"upstream"`
	Reason    string      `json:"reason"`
	Params    jsonrpc.Raw `json:"params"`
	Seq       uint64      `json:"seq"`
	Prev      string      `json:"prev"` // the hash of the line before
	Hash      string      `json:"hash"`
	MAC       string      `json:"mac"`     // a hash with a key
	Of        uint64      `json:"of"`      // the line that this one repeats
	Repeats   int         `json:"repeats"` // how often
}

// replayReport is what another guard would have decided, and the form of --json.
type replayReport struct {
	Decisions int              `json:"decisions"`
	Same      int              `json:"same"`
	Changed   int              `json:"changed"`
	Undecided int              `json:"undecided"`
	Other     int              `json:"other"` // lines that are about no decision of policies
	Causes    map[string]int   `json:"causes,omitempty"`
	Changes   map[string]int   `json:"changes,omitempty"` // "allowed -> denied"
	Calls     []replayedCall   `json:"calls,omitempty"`
	Failed    []replayedFailed `json:"unreadable,omitempty"`
}

type replayedCall struct {
	File     string    `json:"file"`
	Line     int       `json:"line"`
	Time     time.Time `json:"time"`
	As       string    `json:"as"`
	Call     string    `json:"call"`
	Was      string    `json:"was"`
	Now      string    `json:"now"`
	Policies []string  `json:"policies,omitempty"`
	Reason   string    `json:"reason"`
	Count    int       `json:"count"`
}

type replayedFailed struct {
	File string `json:"file"`
	Line int    `json:"line"`
	Why  string `json:"why"`
}

// replayer asks a guard about the lines of an audit.
type replayer struct {
	config *guard.Config
	guard  *guard.Guard
	report replayReport
	was    map[uint64]*replayed // refusals of a chain, by their number: they may be repeated
	last   auditLine            // with a number
}

// replayed is the outcome for a line.
type replayed struct {
	call  *replayedCall // it changes
	cause string        // it cannot be decided; "" with no call: it stays
}

// replay decides the calls of audits again.
func (x *explaining) replay(args []string) error {
	if len(args) > 0 {
		return usagef("For example: farcall explain --config new.yaml --replay audit.jsonl",
			"--replay takes no CALL")
	}
	config, err := loadGuarded(x.config)
	if err != nil {
		return err
	}
	g, err := offlineGuard(config.Guard, nil)
	if err != nil {
		return err
	}
	defer g.Close() //nolint:errcheck // nothing was written
	r := &replayer{
		config: config.Guard, guard: g,
		report: replayReport{Causes: map[string]int{}, Changes: map[string]int{}},
		was:    map[uint64]*replayed{},
	}
	for _, name := range x.audits {
		in, err := os.Open(name)
		if err != nil {
			return unreadable("the audit", name, err)
		}
		before := r.report.Decisions + r.report.Other
		err = r.read(name, in)
		_ = in.Close() // it was read
		if err == nil && r.report.Decisions+r.report.Other == before {
			err = errors.New(
				"no line of it is one of an audit; name the file of audit.file, or one that it was rotated to")
		}
		if err != nil {
			return &exitError{code: exitUsage, err: fmt.Errorf("%s: %w", name, err)}
		}
	}
	if err := x.showReplay(&r.report); err != nil {
		return err
	}
	if r.report.Changed > 0 {
		return &exitError{code: exitFailure}
	}
	return nil
}

func (r *replayer) read(name string, in io.Reader) error {
	lines := bufio.NewReaderSize(in, maxAuditLine)
	for n := 1; ; n++ {
		text, err := lines.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			r.report.Failed = append(r.report.Failed,
				replayedFailed{name, n, "it is too long for a line of an audit"})
			for errors.Is(err, bufio.ErrBufferFull) {
				_, err = lines.ReadSlice('\n')
			}
		} else if len(bytes.TrimSpace(text)) > 0 {
			r.line(name, n, text)
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
}

// decisionsOfPolicies are those that policies had a say in. A limited call was allowed by them.
var decisionsOfPolicies = []string{"allowed", "denied", "limited", "would deny", "would limit"}

func (r *replayer) line(file string, n int, text []byte) {
	var l auditLine
	if err := jsonv2.Unmarshal(text, &l); err != nil {
		r.report.Failed = append(r.report.Failed, replayedFailed{file, n, "it is no line of an audit"})
		return
	}
	r.follow(n == 1, &l)
	if !slices.Contains(decisionsOfPolicies, l.Decision) || l.Call == "" || l.Principal == "" {
		r.report.Other++
		return
	}
	count, out := 1, r.was[l.Of]
	switch {
	case l.Repeats > 0 && out != nil:
		count = l.Repeats
	case l.Repeats > 0:
		count, out = l.Repeats, &replayed{cause: "the line that is repeated is not there"}
	default:
		out = r.again(&l)
		if l.Seq > 0 && (l.Decision == "denied" || l.Decision == "limited") {
			r.was[l.Seq] = out
		}
	}
	r.report.Decisions += count
	switch {
	case out.cause != "":
		r.report.Undecided += count
		r.report.Causes[out.cause] += count
	case out.call == nil:
		r.report.Same += count
	default:
		call := *out.call
		call.File, call.Line, call.Time, call.Count = file, n, l.Time, count
		r.report.Changed += count
		r.report.Changes[call.Was+" -> "+call.Now] += count
		r.report.Calls = append(r.report.Calls, call)
	}
}

// follow forgets the lines of another chain: their numbers mean nothing in this one. A file goes on
// with the chain of the one before when its first line names the last one there. Within a file
// lines may be left out.
func (r *replayer) follow(first bool, l *auditLine) {
	if l.Seq == 0 {
		return
	}
	next := l.Seq == r.last.Seq+1 && l.Prev == cmp.Or(r.last.Hash, r.last.MAC)
	if !next && (first || l.Seq <= r.last.Seq+1) {
		clear(r.was)
	}
	r.last = *l
}

// again decides a call again.
func (r *replayer) again(l *auditLine) *replayed {
	past := &guard.Past{At: l.Time}
	p, refused := r.principal(l, past)
	now := guard.Explanation{Reason: refused}
	if refused == "" {
		call := callAgain(l, past)
		if call == nil {
			return &replayed{cause: "the name of the call is not complete"}
		}
		var decided bool
		if now, decided = r.guard.Reconsider(p, fromAgain(l, past), call, past); !decided {
			return &replayed{cause: unknownOf(past)}
		}
	}
	was := l.Decision != "denied"
	if was == now.Allowed {
		return &replayed{}
	}
	if !was && notByPolicies(l.Reason) { // the same may happen again
		return &replayed{
			cause: "it was refused for its params, which are not checked against schemas again",
		}
	}
	return &replayed{
		call: &replayedCall{
			As: p.Name(), Call: l.Call, Was: l.Decision, Now: decisionOf(&now),
			Policies: now.Policies, Reason: now.Reason,
		},
	}
}

// notByPolicies reports whether a call was refused for something else.
func notByPolicies(reason string) bool {
	starts := []string{"Invalid params", "Schema not supported", "Rate limited"}
	return slices.ContainsFunc(starts, func(start string) bool {
		return strings.HasPrefix(reason, start)
	})
}

// principal is who called, with the roles that the configuration has now, and for tokens and
// certificates those of then. refused says why the caller would not get in.
func (r *replayer) principal(l *auditLine, past *guard.Past) (p *guard.Principal, refused string) {
	p = &guard.Principal{ID: l.Principal, Kind: l.Kind, Method: l.Method, Issuer: l.Issuer}
	switch l.Method {
	case "key":
		i := slices.IndexFunc(r.config.Keys, func(k guard.Key) bool { return k.ID == l.Principal })
		if i < 0 {
			return p, "unauthenticated: there is no key of " + l.Principal
		}
		p.Roles, p.Scopes = r.config.Keys[i].Roles, r.config.Keys[i].Scopes
	case "signature":
		i := slices.IndexFunc(r.config.Signatures, func(s guard.Signer) bool {
			return s.ID == l.Principal
		})
		if i < 0 {
			return p, "unauthenticated: there is no key of " + l.Principal
		}
		p.Roles = r.config.Signatures[i].Roles
	case "process":
		p.Roles = r.config.Stdio.Roles
	case "none":
		if p.Roles = []string{"anonymous"}; !r.config.Anonymous {
			return p, "unauthenticated: the guard does not let anonymous callers in"
		}
	default:
		past.NoClaims, past.NoRoles, past.NoScopes = true, l.Roles == nil, l.Scopes == nil
		if l.Roles != nil {
			p.Roles = *l.Roles
		}
		if l.Scopes != nil {
			p.Scopes = *l.Scopes
		}
	}
	return p, ""
}

// fromAgain is where a call came from. Of HTTP over the loopback address a header may have said
// that it came through a proxy.
func fromAgain(l *auditLine, past *guard.Past) *guard.Conn {
	addr, _ := netip.ParseAddr(l.Address)
	from := &guard.Conn{Transport: l.Transport, Remote: l.Address}
	from.Local = addr.IsLoopback() || l.Transport == "stdio" || l.Transport == "unix"
	past.NoLocal = addr.IsLoopback() && l.Transport != "tcp"
	return from
}

// callAgain is the call of a line; nil when it is not known.
func callAgain(l *auditLine, past *guard.Past) *guard.Call {
	if incomplete(l.Call) {
		return nil
	}
	c := &guard.Call{Upstream: l.Upstream}
	c.Method, c.Name, _ = strings.Cut(l.Call, " ")
	c.Name = strings.TrimPrefix(c.Name, l.Upstream+"/")
	past.NoAnnotations = c.Method == spec.MethodToolsCall
	past.NoArguments = l.Params == nil || incomplete(string(l.Params))
	if past.NoArguments {
		return c
	}
	c.Params, c.Arguments = l.Params, l.Params
	if member := named[c.Method]; member != "" {
		var params struct {
			Arguments jsonrpc.Raw `json:"arguments"`
		}
		past.NoArguments = jsonv2.Unmarshal(l.Params, &params) != nil
		c.Arguments = params.Arguments
	}
	return c
}

// incomplete reports whether something was left out of a text of an audit.
func incomplete(text string) bool {
	return strings.Contains(text, "[redacted]") || strings.Contains(text, "…") ||
		strings.Contains(text, `"[too deep]"`) || strings.Contains(text, `"[not JSON]"`)
}

// unknownOf names what a decision depends on and the audit does not have.
func unknownOf(past *guard.Past) string {
	var list []string
	for _, u := range []struct {
		not  bool
		what string
	}{
		{past.NoArguments, "the arguments"},
		{past.NoAnnotations, "the annotations of the tool"},
		{past.NoRoles, "the roles"},
		{past.NoScopes, "the scopes"},
		{past.NoClaims, "the claims of the token"},
		{past.NoLocal, "whether it came from this machine"},
	} {
		if u.not {
			list = append(list, u.what)
		}
	}
	return "it depends on what the audit does not have: " + strings.Join(list, ", ")
}

func (x *explaining) showReplay(r *replayReport) error {
	if x.asJSON {
		return x.printValue(r)
	}
	for i := range r.Calls {
		c := &r.Calls[i]
		times := ""
		if c.Count > 1 {
			times = fmt.Sprintf(", %d times", c.Count)
		}
		colour := colourRed
		if c.Now == "allowed" {
			colour = colourGreen
		}
		fmt.Fprintf(x.stdout, "%s:%d: %s %s: %s, was %s%s\n        %s: %s\n", tame(c.File), c.Line,
			c.Time.UTC().Format(time.RFC3339), tame(c.As),
			x.paint(colour, c.Now), tame(c.Was), times, tame(c.Call), tame(c.Reason))
	}
	for _, f := range r.Failed {
		fmt.Fprintf(x.stdout, "%s:%d: %s\n", tame(f.File), f.Line, f.Why)
	}
	fmt.Fprintf(x.stdout, "%s: %d unchanged, %d changed, %d undecided; %s\n",
		countOf(r.Decisions, "decision"), r.Same, r.Changed, r.Undecided, countOf(r.Other, "other line"))
	for _, list := range []map[string]int{r.Changes, r.Causes} {
		for _, what := range slices.Sorted(maps.Keys(list)) {
			fmt.Fprintf(x.stdout, "%8d  %s\n", list[what], tame(what))
		}
	}
	return nil
}
