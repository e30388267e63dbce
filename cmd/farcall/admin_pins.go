package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/farcall-dev/farcall/internal/jsonv2"
)

// decisionCommands are those about pins and about the guard.
func decisionCommands() []*adminCommand {
	var digest string
	q := &adminQuestion{}
	return []*adminCommand{
		{
			use: "pins TARGET [NAME]", short: "Show what is pinned, or what an upstream has changed",
			args: cobra.RangeArgs(1, 2), run: listPins,
		},
		{
			use: "accept-pins TARGET NAME", short: "Pin what an upstream says now",
			args: cobra.ExactArgs(2),
			flags: func(cmd *cobra.Command) {
				cmd.Flags().StringVar(&digest, "digest", "", "accept only what has this `digest`")
			},
			run: func(ctx context.Context, o *adminOptions, args []string) error {
				return acceptPins(ctx, o, args[0], digest)
			},
		},
		{
			use: "explain TARGET CALL", short: "Say whether the guard allows a call, and why",
			args: cobra.ExactArgs(2), flags: q.flags, run: q.run,
		},
	}
}

// pinState is what the API says of the pins of an upstream.
type pinState struct {
	Upstream string `json:"upstream"`
	File     string `json:"file"`
	Digest   string `json:"digest"`
	Pinned   int    `json:"pinned"`
	Changes  []struct {
		What string `json:"what"`
		Name string `json:"name"`
		Kind string `json:"kind"`
		Diff string `json:"diff"`
	} `json:"changes"`
}

// show prints what differs.
func (p *pinState) show(o *adminOptions) error {
	for _, c := range p.Changes {
		if err := o.say("%s %s: %s", inLine(c.What), strconv.Quote(inLine(c.Name)), inLine(c.Kind)); err != nil {
			return err
		}
		for line := range strings.Lines(c.Diff) {
			if err := o.say("  %s", inLine(strings.TrimSuffix(line, "\n"))); err != nil {
				return err
			}
		}
	}
	return nil
}

func listPins(ctx context.Context, o *adminOptions, args []string) error {
	if len(args) == 1 {
		return showPins(ctx, o, args[0])
	}
	var all struct {
		File      string     `json:"file"`
		Upstreams []pinState `json:"upstreams"`
	}
	show, err := o.get(ctx, "/pins", &all)
	if err != nil || !show {
		return err
	}
	var rows [][]string
	for i := range all.Upstreams {
		u := &all.Upstreams[i]
		rows = append(rows, []string{inLine(u.Upstream), strconv.Itoa(u.Pinned), strconv.Itoa(len(u.Changes))})
	}
	return o.table([]string{"UPSTREAM", "PINNED", "DIFFERENT"}, rows)
}

func showPins(ctx context.Context, o *adminOptions, name string) error {
	var p pinState
	show, err := o.get(ctx, upstreamPath(name, "/pins"), &p)
	if err != nil || !show {
		return err
	}
	if len(p.Changes) == 0 {
		return o.say("%s of %s, all as pinned in %s", countOf(p.Pinned, "definition"), inLine(p.Upstream), inLine(p.File))
	}
	if err := p.show(o); err != nil {
		return err
	}
	return &exitError{
		code: exitFailure, err: fmt.Errorf("%s is not as %s has it", inLine(p.Upstream), inLine(p.File)),
		hint: fmt.Sprintf("Read the changes above: a model will act on them. 'farcall admin accept-pins TARGET %s --digest %s' accepts them.", inLine(p.Upstream), inLine(p.Digest)),
	}
}

func acceptPins(ctx context.Context, o *adminOptions, name, digest string) error {
	if digest == "" {
		var p pinState
		asJSON := o.asJSON
		o.asJSON = false
		_, err := o.get(ctx, upstreamPath(name, "/pins"), &p)
		o.asJSON = asJSON
		if err != nil {
			return err
		}
		if digest = p.Digest; !asJSON {
			if err := p.show(o); err != nil {
				return err
			}
		}
	}
	var p pinState
	show, err := o.change(ctx, upstreamPath(name, "/pins/accept"), map[string]string{"digest": digest}, &p)
	if err != nil || !show {
		return err
	}
	return o.say("pinned %s of %s in %s", countOf(p.Pinned, "definition"), inLine(p.Upstream), inLine(p.File))
}

// adminQuestion is what the flags of admin explain say.
type adminQuestion struct {
	as, arguments string
	roles         []string
	local         bool
}

func (q *adminQuestion) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&q.as, "as", "", "the caller: the `ID` of a principal of the configuration, or anonymous")
	f.StringArrayVar(&q.roles, "role", nil, "a `role` of the caller, in place of those in the configuration; can be repeated")
	f.StringVar(&q.arguments, "arguments", "", "arguments of the call, as `JSON`")
	f.BoolVar(&q.local, "local", false, "the call comes from the machine of the gateway")
}

func (q *adminQuestion) run(ctx context.Context, o *adminOptions, args []string) error {
	query := url.Values{"call": {args[0]}, "role": q.roles}
	for name, value := range map[string]string{"as": q.as, "arguments": q.arguments} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if q.local {
		query.Set("local", "true")
	}
	var x struct {
		Allowed  bool     `json:"allowed"`
		Call     string   `json:"call"`
		As       string   `json:"as"`
		Kind     string   `json:"kind"`
		Roles    []string `json:"roles"`
		Policies []string `json:"policies"`
		Reason   string   `json:"reason"`
		Scopes   []string `json:"scopes"`
		Limits   []string `json:"limits"`
		Shadow   string   `json:"shadow"`
	}
	text, err := o.answer(ctx, http.MethodGet, "/explain?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	if err := jsonv2.Unmarshal(text, &x); err != nil {
		return &exitError{code: exitProtocol, err: fmt.Errorf("the answer cannot be read: %w", err)}
	}
	if o.asJSON {
		err = o.printJSON(text)
	} else {
		err = (&explaining{env: o.env}).show(&explained{
			Allowed: x.Allowed, Call: x.Call, As: x.As, Kind: x.Kind, Roles: x.Roles, Policies: x.Policies, Reason: x.Reason, Scopes: x.Scopes, Limits: x.Limits, Shadow: x.Shadow,
		})
	}
	if err == nil && !x.Allowed {
		return &exitError{code: exitDenied}
	}
	return err
}
