package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func newClusterCmd(e *env) *cobra.Command {
	const short = "Show the nodes, and what they share"
	status := &adminCommand{use: "status TARGET", short: short, run: clusterStatus}
	return newGroup("cluster", "Look at the nodes that share state, make their key",
		"There are status and key.", status.cobra(e), newClusterKeyCmd(e))
}

func newClusterKeyCmd(e *env) *cobra.Command {
	return noArgs("key", "Print a new key for the nodes of a cluster", func() error {
		return e.say("%s", base64.StdEncoding.EncodeToString(random()))
	})
}

func clusterStatus(ctx context.Context, o *adminOptions, _ []string) error {
	var c struct {
		Engine string `json:"engine"`
		Node   string `json:"node"`
		Size   int    `json:"size"`
		Nodes  []struct {
			Name      string    `json:"name"`
			Version   string    `json:"version"`
			Since     time.Time `json:"since"`
			Calls     string    `json:"calls"`
			Draining  bool      `json:"draining"`
			Sessions  int       `json:"sessions"`
			Suspended int       `json:"suspended"`
			Children  int       `json:"children"`
		} `json:"nodes"`
		Lost   time.Time `json:"lost"`
		Reason string    `json:"reason"`
		Differ []string  `json:"differ"`
		Shared []string  `json:"shared"`
		Own    []string  `json:"own"`
	}
	return o.get(ctx, "/cluster", &c, func() error {
		if c.Engine == "" {
			return o.say("the gateway shares nothing: its configuration has no cluster")
		}
		var rows [][]string
		for _, n := range c.Nodes {
			state := "-"
			if n.Draining {
				state = "draining"
			}
			rows = append(rows, []string{
				or(inLine(n.Name)), inLine(n.Version), rounded(time.Since(n.Since)), state, or(inLine(n.Calls)),
				strconv.Itoa(n.Sessions), strconv.Itoa(n.Suspended), strconv.Itoa(n.Children),
			})
		}
		head := []string{
			"NODE", "VERSION", "AGE", "STATE", "CALLS AT", "SESSIONS", "SUSPENDED",
			"PROCESSES",
		}
		if err := o.table(head, rows); err != nil {
			return err
		}
		count := strconv.Itoa(len(c.Nodes))
		if c.Size > 0 {
			count += fmt.Sprintf(" of %d", c.Size)
		}
		lines := []string{
			"", "asked:              " + or(inLine(c.Node)),
			"engine:             " + inLine(c.Engine), "present:            " + count,
			"shared:             " + or(inLine(strings.Join(c.Shared, ", "))),
			"of each node alone: " + or(inLine(strings.Join(c.Own, ", "))),
		}
		if len(c.Differ) > 0 {
			lines = append(lines, "configuration:      another one at "+inLine(strings.Join(c.Differ, ", ")))
		}
		if err := o.say("%s", strings.Join(lines, "\n")); err != nil || c.Lost.IsZero() {
			return err
		}
		return &exitError{code: exitFailure, err: fmt.Errorf(
			"the shared store does not decide since %s: %s", c.Lost.UTC().Format(time.RFC3339),
			inLine(c.Reason))}
	})
}
