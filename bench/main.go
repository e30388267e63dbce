// Command bench measures farcall against other implementations, against the
// floor that no implementation can go below, and against its own marks, all
// interleaved in one run.
//
//	go run . [-quick] [-only REGEXP] [-report FILE] [-profile DIRECTORY]
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"time"
)

func main() {
	if kind := os.Getenv(childEnv); kind != "" { // a server in its own process
		exit(serveChild(kind, os.Stdin, os.Stdout))
	}
	cfg := config{
		passes: 21, each: 50 * time.Millisecond, idle: 10_000, sessions: 5_000,
		behind: 1_000, nonces: 1_000_000,
	}
	quick := flag.Bool("quick", false, "one short pass: does everything still run?")
	only := flag.String("only", "", "measure only the groups that match this `regexp`")
	report := flag.String("report", "", "also write a page about the run to this `file`")
	profiles := flag.String("profile", "",
		"write a CPU profile of each server of this program into this `directory`")
	flag.Parse()
	if *profiles != "" {
		if err := os.Setenv(profileEnv, *profiles); err != nil {
			exit(err)
		}
	}
	if *quick {
		cfg = quickConfig()
	}
	var err error
	if cfg.only, err = regexp.Compile(*only); err != nil {
		exit(err)
	}
	exit(run(cfg, *report, os.Stdout))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// config says how long to measure.
type config struct {
	passes   int
	each     time.Duration // that one implementation is measured for in one pass
	idle     int           // connections
	sessions int           // of MCP, idle too
	behind   int           // sessions with a gateway
	nonces   int           // of signed messages
	only     *regexp.Regexp
}

func quickConfig() config {
	return config{
		passes: 1, each: 2 * time.Millisecond, idle: 50, sessions: 50, behind: 50,
		nonces: 5_000, only: regexp.MustCompile(""),
	}
}

// run measures everything, prints the tables, and writes the report. A missed
// mark is a finding in the table, not an error.
func run(cfg config, report string, out io.Writer) error {
	began := time.Now()
	var all results
	for _, g := range allGroups() {
		if !cfg.only.MatchString(g.name) {
			continue
		}
		rs, err := measure(g, cfg, out)
		if err != nil {
			return fmt.Errorf("%s: %w", g.name, err)
		}
		printGroup(out, rs)
		all = append(all, rs...)
	}
	for _, kind := range idleKinds {
		if !cfg.only.MatchString(idleGroup(kind)) {
			continue
		}
		r, err := measureIdle(kind, cfg.idle)
		if err != nil {
			return fmt.Errorf("idle %s: %w", kind, err)
		}
		all = append(all, r)
	}
	for _, name := range sessionServers {
		if !cfg.only.MatchString(idleSessions) {
			continue
		}
		r, err := measureSessions(name, cfg.sessions)
		if err != nil {
			return fmt.Errorf("%s: %s: %w", idleSessions, name, err)
		}
		all = append(all, r)
	}
	if cfg.only.MatchString(gatewayIdle) {
		rs, err := measureGatewaySessions(cfg.behind, 10*cfg.behind)
		if err != nil {
			return fmt.Errorf("%s: %w", gatewayIdle, err)
		}
		all = append(all, rs...)
	}
	rs, err := measureGuard(cfg)
	if err != nil {
		return err
	}
	all = append(all, rs...)
	printTable(out, idleTable(all))
	printTable(out, sessionTable(all))
	printTable(out, gatewayIdleTable(all))
	printTable(out, fairTable(all))
	printTable(out, nonceTable(all))
	printTable(out, markTable(all))
	took := time.Since(began).Round(time.Second)
	fmt.Fprintf(out, "\n%d passes, %v in all\n", cfg.passes, took)
	if report == "" {
		return nil
	}
	return os.WriteFile(report, page(cfg, all, took), 0o644)
}

func allGroups() []group {
	groups := codecGroups()
	groups = append(groups, callGroups()...)
	groups = append(groups, httpGroups()...)
	groups = append(groups, mcpWorkGroups()...)
	groups = append(groups, rpcLoadGroups()...)
	groups = append(groups, mcpLoadGroups()...)
	groups = append(groups, gatewayGroups()...)
	groups = append(groups, observeGroups()...)
	groups = append(groups, captureGroups()...)
	return append(groups, guardGroups()...)
}
