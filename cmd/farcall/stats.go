package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/visible"
)

// status is what a gateway says at /api/status, as far as it is shown.
type status struct {
	Name      string         `json:"name"`
	Version   string         `json:"version"`
	Since     time.Time      `json:"since"`
	Draining  bool           `json:"draining"`
	Sessions  int            `json:"sessions"`
	InFlight  int            `json:"inFlight"`
	Suspended int            `json:"suspended"`
	Calls     int64          `json:"calls"`
	Errors    int64          `json:"errors"`
	Upstreams []serverStatus `json:"upstreams"`
}

type serverStatus struct {
	Name      string  `json:"name"`
	State     string  `json:"state"`
	Revision  string  `json:"revision"`
	InFlight  int     `json:"inFlight"`
	Queued    int     `json:"queued"`
	Children  int     `json:"children"`
	Restarts  int     `json:"restarts"`
	Calls     int64   `json:"calls"`
	Errors    int64   `json:"errors"`
	P50       float64 `json:"p50Ms"`
	P99       float64 `json:"p99Ms"`
	LastError string  `json:"lastError"`
}

// statsOptions are those of stats and top.
type statsOptions struct {
	operated
	interval time.Duration
	count    int
	sort     string
}

func newStatsCmd(e *env) *cobra.Command {
	o := &statsOptions{operated: operated{remote: &remote{env: e}}}
	cmd := command("stats TARGET", "Show what a gateway and its servers are doing", o.once)
	cmd.Args = cobra.ExactArgs(1)
	o.flags(cmd, defaultTimeout)
	cmd.Flags().BoolVar(&o.asJSON, "json", false, "print the answer as it came")
	return cmd
}

func newTopCmd(e *env) *cobra.Command {
	o := &statsOptions{operated: operated{remote: &remote{env: e}}}
	cmd := command("top TARGET", "Watch what a gateway and its servers are doing", o.watch)
	cmd.Args = cobra.ExactArgs(1)
	o.flags(cmd, defaultTimeout)
	f := cmd.Flags()
	f.DurationVar(&o.interval, "interval", 2*time.Second, "how long to wait between two looks")
	f.IntVarP(&o.count, "count", "n", 0, "end after so many looks; 0 for ever")
	f.StringVar(&o.sort, "sort", "",
		"put the servers first that have most `calls`, errors, queued or p99; by default they are in "+
			"the order of the configuration")
	return cmd
}

// once is stats.
func (o *statsOptions) once(cmd *cobra.Command, args []string) error {
	if _, err := o.aim(cmd, args); err != nil {
		return err
	}
	ctx, stop := interruptible(cmd.Context())
	defer stop()
	raw, s, err := o.fetch(ctx)
	switch {
	case err != nil:
		return err
	case o.asJSON:
		return o.printJSON(raw)
	}
	_, err = io.WriteString(o.stdout, o.table(s, nil, 0))
	return err
}

// What a terminal obeys.
const (
	screenOther = "\x1b[?1049h" // the other screen, so that what was there is there again in the end
	screenBack  = "\x1b[?1049l"
	screenHome  = "\x1b[H\x1b[J"
)

// watch is top.
func (o *statsOptions) watch(cmd *cobra.Command, args []string) error {
	if o.interval < 100*time.Millisecond {
		return usagef("Use 100ms or more.", "--interval: %v is too short", o.interval)
	}
	if !slices.Contains([]string{"", "calls", "errors", "queued", "p99"}, o.sort) {
		return usagef("Use calls, errors, queued or p99.", "--sort: there is no column %q to sort by",
			o.sort)
	}
	if _, err := o.aim(cmd, args); err != nil {
		return err
	}
	ctx, stop := interruptible(cmd.Context())
	defer stop()
	if o.isTTY {
		fmt.Fprint(o.stdout, screenOther)
		defer fmt.Fprint(o.stdout, screenBack)
	}
	var before *status
	var looked time.Time
	tick := time.NewTicker(o.interval)
	defer tick.Stop()
	for n := 1; ; n++ {
		_, s, err := o.fetch(ctx)
		if err != nil {
			return err
		}
		now := time.Now()
		text := o.table(s, before, now.Sub(looked))
		before, looked = s, now
		switch {
		case o.isTTY:
			text = screenHome + text
		case n > 1:
			text = "\n" + text
		}
		if _, err := io.WriteString(o.stdout, text); err != nil {
			return err
		}
		if n == o.count {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// maxStatus bounds what a gateway says, in bytes.
const maxStatus = 64 << 20

// fetch asks for the status.
func (o *statsOptions) fetch(ctx context.Context) ([]byte, *status, error) {
	answer, text, err := o.ask(ctx, http.MethodGet, "/api/status", nil) //nolint:bodyclose // ask has closed it
	if err != nil {
		return nil, nil, err
	}
	s, url := new(status), answer.Request.URL
	switch {
	case answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusForbidden:
		return nil, nil, failf(exitAnswered,
			"It needs the permission to call gateway/status: --bearer FILE has a key of such a principal.",
			"%s: %s", url, answer.Status)
	case answer.StatusCode != http.StatusOK:
		return nil, nil, failf(exitAnswered, noGatewayHint(answer.StatusCode), "%s: %s", url,
			answer.Status)
	case len(text) > maxStatus || jsonv2.Unmarshal(text, s) != nil:
		return nil, nil, failf(exitProtocol, "", "%s: what it says is no status of a gateway", url)
	}
	return text, s, nil
}

// table shows a status, with what has changed since another one.
func (o *statsOptions) table(s, before *status, since time.Duration) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s, up %s: %s, %s in flight, %d waiting for an answer of the client, %s, %s\n",
		inLine(s.Name), inLine(s.Version), rounded(time.Since(s.Since)),
		countOf(s.Sessions, "session"), countOf(s.InFlight, "call"), s.Suspended,
		countOf(int(s.Calls), "call"), countOf(int(s.Errors), "error"))
	if s.Draining {
		b.WriteString(o.paint(colourRed, "It takes no new calls: it is about to stop.") + "\n")
	}
	old := map[string]serverStatus{}
	head := []string{
		"SERVER", "STATE", "IN FLIGHT", "QUEUED", "CALLS", "ERRORS", "P50", "P99",
		"PROCESSES", "RESTARTS", "LAST ERROR",
	}
	if before != nil {
		head[4], head[5] = "CALLS/S", "ERRORS/S"
		for _, u := range before.Upstreams {
			old[u.Name] = u
		}
	}
	rows := [][]string{head}
	for _, u := range o.sorted(s.Upstreams) {
		calls, failed := strconv.FormatInt(u.Calls, 10), strconv.FormatInt(u.Errors, 10)
		if before != nil {
			was := old[u.Name]
			calls, failed = perSecond(u.Calls-was.Calls, since), perSecond(u.Errors-was.Errors, since)
		}
		last, _, _ := strings.Cut(u.LastError, "\n")
		rows = append(rows, []string{
			inLine(u.Name), inLine(u.State), strconv.Itoa(u.InFlight), strconv.Itoa(u.Queued), calls, failed,
			inMilliseconds(u.P50), inMilliseconds(u.P99), strconv.Itoa(u.Children), strconv.Itoa(u.Restarts),
			shorten(inLine(last), 60),
		})
	}
	o.align(&b, rows)
	return b.String()
}

// sorted returns the servers in the order that is asked for.
func (o *statsOptions) sorted(all []serverStatus) []serverStatus {
	by := map[string]func(u *serverStatus) float64{
		"calls":  func(u *serverStatus) float64 { return float64(u.Calls) },
		"errors": func(u *serverStatus) float64 { return float64(u.Errors) },
		"queued": func(u *serverStatus) float64 { return float64(u.Queued) },
		"p99":    func(u *serverStatus) float64 { return u.P99 },
	}[o.sort]
	if by == nil {
		return all
	}
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b serverStatus) int { return cmp.Compare(by(&b), by(&a)) })
	return all
}

// align writes rows in columns: numbers, which are the third to the last but one, to the right.
func (o *statsOptions) align(b *strings.Builder, rows [][]string) {
	for n, text := range aligned(rows, 2, len(rows[0])-2) {
		if n == 0 {
			text = o.paint(colourFaint, text)
		} else if rows[n][1] == "down" || rows[n][1] == "open" {
			text = o.paint(colourRed, text)
		}
		b.WriteString(text + "\n")
	}
}

func perSecond(n int64, since time.Duration) string {
	return strconv.FormatFloat(float64(max(n, 0))/max(since.Seconds(), 0.001), 'f', 1, 64)
}

func inMilliseconds(ms float64) string {
	switch {
	case ms == 0:
		return "-"
	case ms < 10:
		return strconv.FormatFloat(ms, 'f', 1, 64) + "ms"
	}
	return strconv.FormatFloat(ms, 'f', 0, 64) + "ms"
}

// rounded is a time in its two largest units.
func rounded(d time.Duration) string {
	switch {
	case d >= 24*time.Hour:
		return fmt.Sprintf("%dd%dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
	case d >= time.Hour:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	case d >= time.Minute:
		return fmt.Sprintf("%dm%ds", d/time.Minute, d%time.Minute/time.Second)
	}
	return fmt.Sprintf("%ds", d/time.Second)
}

// inLine is a text as it can stand in a line.
func inLine(text string) string { return visible.Text(strings.ReplaceAll(text, "\n", " ")) }
