package main

import (
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/farcall-dev/farcall/jsonrpc"
)

func newErrorsCmd(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "errors [CODE|WORD]",
		Short: "Print the registry of error codes, or what one code means",
		// A code begins with a minus sign and is no flag.
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			args = slices.DeleteFunc(args, func(a string) bool { return a == "--" })
			switch {
			case slices.Contains(args, "--help") || slices.Contains(args, "-h"):
				return cmd.Help()
			case len(args) > 1:
				return usagef("Give one code or word.", "too many arguments")
			case len(args) == 0:
				if err := e.printConditions(jsonrpc.Conditions()); err != nil {
					return err
				}
				_, err := fmt.Fprintf(e.stderr,
					"'farcall errors erlmcp' lists the %d of that implementation.\n", len(erlmcp()))
				return err
			}
			return e.printCode(args[0])
		},
	}
}

// registry returns the conditions of the library, and those of other programs that users meet.
func registry() []jsonrpc.Condition {
	return append(jsonrpc.Conditions(), erlmcp()...)
}

// erlmcpTable has what the Erlang MCP implementation of that name sends: its errors and its
// refusals. It numbers its conditions in the range that MCP 2026-07-28 has since reserved; there
// they get the code of the standard condition, or one a thousand higher, which is outside every
// reserved range.
//
//go:embed errors_erlmcp.csv
var erlmcpTable string

// erlmcp returns the rows of erlmcpTable.
func erlmcp() []jsonrpc.Condition {
	lines := strings.Split(strings.TrimSpace(erlmcpTable), "\n")[1:]
	all := make([]jsonrpc.Condition, len(lines))
	for i, line := range lines {
		f := strings.Split(line, ",")
		integer := func(column int) int { n, _ := strconv.Atoi(f[column]); return n }
		all[i] = jsonrpc.Condition{
			Name: f[0], Category: f[1], Severity: f[2], Retryable: f[3] == "true", HTTPStatus: integer(4),
			Plain: jsonrpc.Code(integer(5)), Legacy: jsonrpc.Code(integer(5)),
			Modern: jsonrpc.Code(integer(6)), Source: f[7],
		}
	}
	return all
}

// meanings returns what a code may mean.
func meanings(c jsonrpc.Code) []jsonrpc.Condition {
	return slices.DeleteFunc(registry(), func(row jsonrpc.Condition) bool { return !row.Means(c) })
}

func (e *env) printCode(text string) error {
	n, err := strconv.Atoi(text)
	if err != nil {
		word := strings.ToLower(text)
		rows := slices.DeleteFunc(registry(), func(c jsonrpc.Condition) bool {
			return !strings.Contains(strings.ToLower(c.Name+" "+c.Category+" "+c.Source), word)
		})
		if len(rows) == 0 {
			return usagef("'farcall errors' lists those that are common.",
				"no error has %q in its name", text)
		}
		return e.printConditions(rows)
	}
	if n > 0 && len(meanings(jsonrpc.Code(n))) == 0 &&
		(len(meanings(jsonrpc.Code(-n))) > 0 || reserved(-n)) {
		n = -n // the sign is a nuisance on a command line
	}
	known := meanings(jsonrpc.Code(n))
	if len(known) == 0 {
		return e.say("%d has no meaning that is registered: %s.", n, rangeOf(n))
	}
	for i, c := range known {
		if i > 0 {
			fmt.Fprintln(e.stdout)
		}
		if err := e.explainCondition(n, c); err != nil {
			return err
		}
	}
	return nil
}

// reserved reports whether a code is one of those that JSON-RPC reserves (JSON-RPC 2.0 §5.1).
func reserved(n int) bool { return n >= -32768 && n <= -32000 }

// rangeOf says who may use a code (JSON-RPC 2.0 §5.1).
func rangeOf(n int) string {
	switch {
	case n >= -32099 && n <= -32000:
		return "servers define -32000 to -32099 as they like"
	case reserved(n):
		return "-32768 to -32000 are reserved for JSON-RPC itself"
	}
	return "it is outside the reserved range, so the application defines it"
}

func (e *env) explainCondition(n int, c jsonrpc.Condition) error {
	rows := [][]string{
		{"", ""},
		{"  used on", strings.Join(dialectsOf(n, c), ", ")},
		{"  category", c.Category + ", " + c.Severity},
		{"  HTTP status", number(c.HTTPStatus)},
		{"  defined by", c.Source},
		{"  what to do", advice(c)},
	}
	if c.Explained() {
		rows = append(rows, []string{"  why", "data of the error says it"})
	}
	fmt.Fprintf(e.stdout, "%s  %s\n", e.paint(colourNumber, strconv.Itoa(n)),
		e.paint(colourName, c.Name))
	return columns(e.stdout, rows[1:], nil)
}

func dialectsOf(n int, c jsonrpc.Condition) []string {
	var names []string
	for _, d := range []struct {
		code jsonrpc.Code
		name string
	}{{c.Plain, "JSON-RPC"}, {c.Legacy, "MCP up to 2025-11-25"}, {c.Modern, "MCP 2026-07-28"}} {
		if int(d.code) == n {
			names = append(names, d.name)
		}
	}
	return names
}

// advice says what a caller can do about a condition.
func advice(c jsonrpc.Condition) string {
	switch c.Plain {
	case jsonrpc.ParseError:
		return "Send valid JSON in UTF-8. 'farcall call --curl' shows what farcall would send."
	case jsonrpc.InvalidRequest:
		return `Send {"jsonrpc":"2.0","id":1,"method":"name","params":{}}: params an object or array, ` +
			`id a string or number, no member twice.`
	case jsonrpc.MethodNotFound:
		return "Check the name, which is case-sensitive. 'farcall discover TARGET' lists what there is."
	case jsonrpc.InvalidParams:
		return "Check the params against 'farcall discover TARGET METHOD'; data may say which " +
			"one is wrong."
	case jsonrpc.InternalError:
		return "The fault is the server's; its log has the cause."
	default:
	}
	switch {
	case c.Retryable:
		return "Try again, after a pause that grows with each attempt."
	case c.Category == "auth" || c.Category == "authentication" || c.Category == "authorization" ||
		c.Category == "security":
		return "Send valid credentials that allow it; the same call without them fails again."
	case c.HTTPStatus >= 400 && c.HTTPStatus < 500:
		return "Change the call; the same one fails again."
	}
	return "The same call is likely to fail again; the server's log may say more."
}

func (e *env) printConditions(list []jsonrpc.Condition) error {
	rows := [][]string{
		{
			"JSON-RPC", "MCP<=2025", "MCP 2026", "NAME", "CATEGORY", "SEVERITY", "RETRY", "HTTP",
			"DEFINED BY",
		},
	}
	for _, c := range list {
		retry := "-"
		if c.Retryable {
			retry = "yes"
		}
		rows = append(rows, []string{
			number(int(c.Plain)), number(int(c.Legacy)), number(int(c.Modern)),
			c.Name, c.Category, c.Severity, retry, number(c.HTTPStatus), c.Source,
		})
	}
	return columns(e.stdout, rows, func(row, col int, text string) string {
		switch {
		case row == 0:
			return e.paint(colourFaint, text)
		case col == 3:
			return e.paint(colourName, text)
		}
		return text
	})
}

// number leaves out what is zero.
func number(n int) string {
	if n == 0 {
		return "-"
	}
	return strconv.Itoa(n)
}
