package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/farcall-dev/farcall/capture"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/visible"
	"github.com/farcall-dev/farcall/internal/watch"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// viewing is one run of the command.
type viewing struct {
	*env
	follow, data, asJSON, all, frames bool
	call                              uint64
	count                             int

	filter *capture.Filter
	out    *bufio.Writer
	shown  int
}

func newViewCmd(e *env) *cobra.Command {
	v := &viewing{env: e}
	cmd := command("view FILE [FILTER]", "Show the frames of a capture",
		func(cmd *cobra.Command, args []string) error { return v.run(cmd.Context(), args) })
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.BoolVarP(&v.data, "data", "d", false, "print the messages, too")
	flags.Uint64Var(&v.call, "call", 0,
		"only the call with record `N` as its request, with its progress and questions; of a gateway "+
			"on both sides")
	flags.BoolVarP(&v.follow, "follow", "f", false, "wait for more when the file ends")
	flags.IntVarP(&v.count, "count", "n", 0, "end after so many lines")
	flags.BoolVar(&v.all, "all", false,
		"show connections, HTTP envelopes, standard error and all other records, too")
	flags.BoolVar(&v.frames, "frames", false, "print only the direction and the bytes of each frame")
	flags.BoolVar(&v.asJSON, "json", false, "print the records as they are in the file")
	return cmd
}

func (v *viewing) run(ctx context.Context, args []string) (err error) {
	if len(args) == 0 {
		return usagef("For example: farcall view a.jsonl 'method:tools/*'", "no FILE")
	}
	if v.filter, err = capture.ParseFilter(strings.Join(args[1:], " ")); err != nil {
		return usagef("Run 'farcall view --help' for the language.", "%w", err)
	}
	ctx, stop := interruptible(ctx)
	defer stop()
	member := func(*capture.Record) bool { return true }
	if v.call > 0 {
		if member, err = v.callOf(args[0]); err != nil {
			return err
		}
	}
	r, end, err := v.open(ctx, args[0])
	if err != nil {
		return err
	}
	defer end()
	v.out = bufio.NewWriterSize(v.stdout, 64<<10)
	err = v.show(r, member)
	err = cmp.Or(err, v.out.Flush())
	if ctx.Err() != nil { // that is how following ends
		return nil
	}
	if r.Torn() {
		fmt.Fprintln(v.stderr, "farcall: the last line is torn: its writer was stopped, or still writes")
	}
	return err
}

// open opens the file. end closes it.
func (v *viewing) open(
	ctx context.Context, path string,
) (r *capture.Reader, end func(), err error) {
	if !v.follow || path == "-" {
		if r, err = capture.Open(path); err != nil {
			return nil, nil, unreadable("the capture", path, err)
		}
		return r, func() { _ = r.Close() }, nil // it was only read
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, unreadable("the capture", path, err)
	}
	if r, err = capture.NewReader(watch.Follow(ctx, f, v.flush)); err != nil {
		_ = f.Close() // it was only read
		return nil, nil, unreadable("the capture", path, err)
	}
	return r, func() { _, _ = r.Close(), f.Close() }, nil // as above
}

// flush writes what was printed so far.
func (v *viewing) flush() error {
	if v.out == nil {
		return nil
	}
	return v.out.Flush()
}

// show prints what is selected.
func (v *viewing) show(r *capture.Reader, member func(*capture.Record) bool) error {
	for {
		before := r.Line()
		rec, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && r.Line() == before: // it repeats: nothing more can be read
			return &exitError{code: exitFailure}
		case err != nil:
			fmt.Fprintf(v.stderr, "farcall: %s\n", tame(err.Error()))
			continue
		}
		if !v.wanted(rec) || !member(rec) || !v.filter.Match(rec) {
			continue
		}
		if err := v.print(rec); err != nil {
			return err
		}
		if v.shown++; v.shown == v.count {
			return nil
		}
		if v.shown == 50 { // the first lines come at once, however large the file is
			if err := v.out.Flush(); err != nil {
				return err
			}
		}
	}
}

// wanted reports whether records of the type are shown.
func (v *viewing) wanted(rec *capture.Record) bool {
	switch rec.Type {
	case "frame":
		return true
	case "drop", "call", "event":
		return !v.frames
	case "stderr":
		return v.all || v.call == 0 && v.filter.String() == "" && !v.frames
	}
	return v.all || v.filter.String() != "" && strings.Contains(v.filter.String(), "type")
}

func (v *viewing) print(rec *capture.Record) (err error) {
	if v.asJSON {
		_, err = v.out.Write(rec.Append(nil))
		return err
	}
	if v.frames {
		return v.printFrame(rec)
	}
	line := make([]byte, 0, 256)
	line = rec.At().AppendFormat(line, "15:04:05.000000 ")
	line = fmt.Appendf(line, "%6s c%-3d ", "#"+strconv.FormatUint(rec.Seq, 10), rec.Conn)
	arrow := map[string]string{"up": "->", "down": "<-"}[rec.Dir]
	if rec.Side() != "" {
		arrow = map[string]string{"up": "=>", "down": "<="}[rec.Dir]
	}
	line = fmt.Appendf(line, "%-2s %s\n", arrow, v.about(rec))
	if _, err = v.out.Write(line); err != nil || !v.data || !rec.HasData() {
		return err
	}
	data, err := rec.Data()
	if err != nil {
		return err
	}
	if jsonrpc.Valid(data) == nil {
		data = pretty(data, v.colours())
	} else {
		data = []byte(visible.Log(string(data)))
	}
	_, err = fmt.Fprintf(v.out, "%s\n", data)
	return err
}

// printFrame prints the bytes of a frame.
func (v *viewing) printFrame(rec *capture.Record) error {
	data, err := rec.Data()
	if err == nil && data != nil {
		_, err = fmt.Fprintf(v.out, "%s %s\n", rec.Dir, tame(string(data)))
	}
	return err
}

// about says what a record is.
func (v *viewing) about(rec *capture.Record) string {
	var b strings.Builder
	word := func(format string, args ...any) {
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, format, args...)
	}
	switch rec.Type {
	case "frame":
		v.aboutFrame(rec, word)
	case "drop":
		word("%s", v.paint(colourRed, fmt.Sprintf("%d records are missing: %s", rec.Size, tame(rec.Why))))
	case "stderr":
		data, err := rec.Data()
		if err != nil {
			data = []byte(err.Error())
		}
		word("stderr %s", strings.TrimRight(visible.Log(string(data)), "\n"))
	case "http":
		word("http %s %s", tame(rec.Verb), tame(rec.Path))
		if rec.Status > 0 {
			word("status %d", rec.Status)
		}
	case "conn":
		word("connection %s %s %s", tame(rec.Transport), tame(rec.Peer),
			tame(strings.Join(rec.Command, " ")))
		if rec.Closed {
			word("closed")
		}
	case "call":
		v.aboutFrame(rec, word)
	default:
		word("%s %s %s %s %s", tame(rec.Type), tame(rec.Method), tame(rec.Name), tame(rec.Outcome),
			tame(rec.Why))
	}
	return b.String()
}

// aboutFrame says what a frame is.
func (v *viewing) aboutFrame(rec *capture.Record, word func(string, ...any)) {
	switch rec.Kind {
	case "response":
		what, hue := "result", colourGreen
		switch {
		case rec.Code != 0:
			what, hue = "error "+strconv.Itoa(rec.Code), colourRed
		case rec.ToolError:
			what, hue = "tool error", colourRed
		}
		word("%s", v.paint(hue, what))
	case "request":
	case "":
		word("%s", v.paint(colourRed, "no answer"))
		if rec.Code != 0 {
			word("(%d)", rec.Code)
		}
	default:
		word("%s", rec.Kind)
	}
	for _, p := range []struct{ format, text string }{
		{"[%s]", rec.Upstream}, {"%s", rec.Method}, {"%s", rec.Name}, {"id %s", rec.ID},
	} {
		if p.text != "" {
			word(p.format, tame(p.text))
		}
	}
	if rec.Ref > 0 {
		word("to #%d", rec.Ref)
	}
	if rec.Duration > 0 {
		word("%s", roundTime(time.Duration(rec.Duration)))
	}
	word("%d B", rec.Size)
	if rec.Cut > 0 {
		word("(%d kept)", rec.Cut)
	}
	if n := len(rec.Redacted); n > 0 {
		word("(%d redacted)", n)
	}
	for _, text := range []string{rec.Problem, rec.Era, rec.Principal, rec.Outcome} {
		if text != "" {
			word("%s", tame(text))
		}
	}
}

// roundTime keeps three digits.
func roundTime(d time.Duration) time.Duration {
	for unit := time.Duration(1); ; unit *= 10 {
		if d < 1000*unit {
			return d.Round(unit)
		}
	}
}

// callOf returns what tells the records of one call: its request, its answer, and on the same
// connection what passed between them and belongs to it: its progress, its cancellation, and
// questions with their answers.
func (v *viewing) callOf(path string) (func(*capture.Record) bool, error) {
	r, err := capture.Open(path)
	if err != nil {
		return nil, unreadable("the capture", path, err)
	}
	defer r.Close() //nolint:errcheck // it was only read
	if calls, err := callsOf(path, v.call); calls != nil || err != nil {
		return func(rec *capture.Record) bool { return calls[rec.Call] }, err
	}
	var (
		members = map[uint64]bool{v.call: true}
		request *capture.Record
		related *capture.Filter
	)
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil || rec.Type != "frame" {
			continue
		}
		switch {
		case rec.Seq == v.call && rec.Kind == "request":
			request = rec.Clone()
			if related, err = relatedTo(request); err != nil {
				return nil, err
			}
		case request != nil && belongs(rec, request, members, related):
			members[rec.Seq] = true
		}
		if request != nil && rec.Ref == v.call {
			break
		}
	}
	if request == nil {
		return nil, usagef("Take the number of a request: farcall view "+path+" kind:request",
			"record %d is not a request", v.call)
	}
	return func(rec *capture.Record) bool { return members[rec.Seq] }, nil
}

// belongs tells whether a frame is part of the call of a request. members are the records of it so
// far.
func belongs(rec, request *capture.Record, members map[uint64]bool, related *capture.Filter) bool {
	switch {
	case rec.Conn != request.Conn:
		return false
	case rec.Ref > 0 && members[rec.Ref]:
		return true
	case rec.Kind == "notification":
		return related.Match(rec)
	}
	return rec.Kind == "request" && rec.Dir != request.Dir && rec.Exchange == request.Exchange
}

// relatedTo returns a filter for the notifications that name a request.
func relatedTo(request *capture.Record) (*capture.Filter, error) {
	text := "params.requestId=" + strconv.Quote(strings.Trim(request.ID, `"`))
	data, err := request.Data()
	if err != nil {
		return nil, err
	}
	var params struct {
		Params struct {
			Meta struct {
				Token jsonrpc.Raw `json:"progressToken"`
			} `json:"_meta"`
		} `json:"params"`
	}
	// A request without such params has no token.
	if err := jsonv2.Unmarshal(data, &params); err == nil && params.Params.Meta.Token != nil {
		token := strings.Trim(string(params.Params.Meta.Token), `"`)
		text += " or params.progressToken=" + strconv.Quote(token)
	}
	return capture.ParseFilter(text)
}

// callsOf returns the numbers of the calls that belong to a request of a capture of farcall serve:
// the call that began it all, and all calls that it has caused, on both sides of a gateway. Nil:
// the record says no call.
func callsOf(path string, seq uint64) (map[uint64]bool, error) {
	r, err := capture.Open(path)
	if err != nil {
		return nil, unreadable("the capture", path, err)
	}
	defer r.Close() //nolint:errcheck // it was only read
	var start uint64
	parents, order := map[uint64]uint64{}, []uint64{}
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil || rec.Call == 0 {
			continue
		}
		if rec.Seq == seq {
			start = rec.Call
		}
		if _, known := parents[rec.Call]; !known {
			parents[rec.Call] = rec.Parent
			order = append(order, rec.Call)
		}
	}
	if start == 0 {
		return nil, nil
	}
	for range order { // a loop of parents has no end
		if parents[start] == 0 {
			break
		}
		start = parents[start]
	}
	calls := map[uint64]bool{start: true}
	for _, call := range order { // a parent comes first
		if parent := parents[call]; parent != 0 && calls[parent] {
			calls[call] = true
		}
	}
	return calls, nil
}
