package main

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"
)

// signedIn is what the API says of the sign-in of a principal to an upstream.
type signedIn struct {
	Principal string `json:"principal"`
	Upstream  string `json:"upstream"`
}

func listSignIns(ctx context.Context, o *adminOptions, _ []string) error {
	var all struct {
		SignIns []signedIn `json:"signIns"`
		Damaged int        `json:"damaged"`
	}
	return o.get(ctx, "/sign-ins", &all, func() error {
		var rows [][]string
		for _, s := range all.SignIns {
			rows = append(rows, []string{inLine(s.Principal), inLine(s.Upstream)})
		}
		if err := o.table([]string{"PRINCIPAL", "UPSTREAM"}, rows); err != nil || all.Damaged == 0 {
			return err
		}
		return o.say("%d records cannot be read: their principals have to sign in again", all.Damaged)
	})
}

// adminSignIns chooses what farcall admin end-sign-ins ends.
type adminSignIns struct {
	Principal string `json:"principal,omitempty"`
	Upstream  string `json:"upstream,omitempty"`
	All       bool   `json:"all,omitempty"`
}

func (w *adminSignIns) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&w.Principal, "principal", "", "end the sign-ins of the principal of this `name`")
	flags.StringVar(&w.Upstream, "upstream", "", "end the sign-ins to the upstream of this `name`")
	flags.BoolVar(&w.All, "all", false, "end all sign-ins")
}

func (w *adminSignIns) end(ctx context.Context, o *adminOptions, _ []string) error {
	if w.All == (w.Principal != "" || w.Upstream != "") {
		return usagef("For example: farcall admin end-sign-ins localhost:7331 --principal ada",
			"either --principal and --upstream, or --all, say which sign-ins are to end")
	}
	var r struct {
		Ended    []signedIn `json:"ended"`
		Problems []string   `json:"problems"`
	}
	err := o.change(ctx, "/sign-ins/end", w, &r, func() error {
		for _, s := range r.Ended {
			if err := o.say("signed %s out of %s", inLine(s.Principal), inLine(s.Upstream)); err != nil {
				return err
			}
		}
		return nil
	})
	switch {
	case err != nil || o.asJSON:
		return err
	case len(r.Problems) > 0:
		return &exitError{code: exitFailure, err: errors.New(inLine(strings.Join(r.Problems, "; ")))}
	case len(r.Ended) == 0:
		return &exitError{
			code: exitFailure, err: errors.New("no such sign-in was found"),
			hint: "'farcall admin sign-ins TARGET' lists them.",
		}
	}
	return nil
}
