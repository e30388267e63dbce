package farcall_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/stream"
)

// indexing reports its work as its params say.
type indexing struct {
	Files int    `json:"files,omitzero"`
	How   string `json:"how,omitzero"`
}

func index(ctx context.Context, p indexing) (string, error) {
	for i := range p.Files {
		w := farcall.WorkDone{Percentage: new(100 * i / p.Files)}
		if i == 0 && p.How == "titled" {
			w.Title, w.Cancellable, w.Message = "Indexing", true, "looking"
		}
		if err := farcall.ReportWorkDone(ctx, w); err != nil {
			return "", err
		}
	}
	switch p.How {
	case "panics":
		panic("mid-work")
	case "exits":
		runtime.Goexit()
	case "fails":
		return "", context.DeadlineExceeded
	case "ends":
		for _, kind := range []string{"end", "", "end"} {
			if err := farcall.ReportWorkDone(ctx,
				farcall.WorkDone{Kind: kind, Title: "x", Message: "all", Percentage: new(7)}); err != nil {
				return "", err
			}
		}
	}
	return "done", nil
}

func indexMux() *farcall.Mux {
	mux := farcall.NewMux()
	farcall.Handle(mux, "index", index)
	return mux
}

// What a server sends to the byte: nothing to who has not asked, and all between the request and
// its answer.
func TestWorkDoneOnTheWire(t *testing.T) {
	long := `"` + strings.Repeat("x", 1022) + `"`
	for name, c := range map[string]struct{ params, want string }{
		"not asked": {`{"files":2}`, `"done"`},
		"begin":     {`{"files":1,"workDoneToken":"t"}`, `begin-0 end "done"`},
		"reports": {
			`{"files":4,"workDoneToken":"t\u0041"}`,
			`begin-0 report-25 report-50 report-75 end "done"`,
		},
		"number":    {`{"files":1,"workDoneToken":-7}`, `begin-0 end "done"`},
		"long":      {`{"files":1,"workDoneToken":` + long + `}`, `begin-0 end "done"`},
		"no work":   {`{"workDoneToken":"t"}`, `"done"`},
		"early end": {`{"files":1,"how":"ends","workDoneToken":"t"}`, `begin-0 end-all "done"`},
		"only end":  {`{"how":"ends","workDoneToken":"t"}`, `"done"`},
		"titled":    {`{"files":1,"how":"titled","workDoneToken":"t"}`, `titled end "done"`},
		"fails":     {`{"files":1,"how":"fails","workDoneToken":"t"}`, `begin-0 end -32009`},
		"panics":    {`{"files":1,"how":"panics","workDoneToken":"t"}`, `begin-0 end -32603`},
		"exits":     {`{"files":1,"how":"exits","workDoneToken":"t"}`, `begin-0 end -32603`},
		"too long":  {`{"files":1,"workDoneToken":` + long[:1] + "x" + long[1:] + `}`, `"done"`},
		"object":    {`{"files":1,"workDoneToken":{"token":"t"}}`, `"done"`},
		"array":     {`{"files":1,"workDoneToken":["t"]}`, `"done"`},
		"null":      {`{"files":1,"workDoneToken":null}`, `"done"`},
		"boolean":   {`{"files":1,"workDoneToken":true}`, `"done"`},
		"beside": {
			`{"files":1,"how":"","partialResultToken":"p","workDoneToken":"t"}`,
			`begin-0 end "done"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWire(t, stream.NDJSON, indexMux(), nil)
			w.write(`{"jsonrpc":"2.0","method":"index","params":` + c.params + `,"id":1}`)
			_, token, _ := strings.Cut(strings.TrimSuffix(c.params, "}"), `"workDoneToken":`)
			for want := range strings.SplitSeq(c.want, " ") {
				value := ""
				switch kind, rest, _ := strings.Cut(want, "-"); kind {
				case "begin":
					value = `{"kind":"begin","title":"index","percentage":0}`
				case "titled":
					value = `{"kind":"begin","title":"Indexing","cancellable":true,"message":"looking",` +
						`"percentage":0}`
				case "report":
					value = `{"kind":"report","percentage":` + rest + `}`
				case "end":
					value = `{"kind":"end"}`
					if rest != "" {
						value = `{"kind":"end","message":"` + rest + `"}`
					}
				}
				switch {
				case value != "":
					w.expect(`{"jsonrpc":"2.0","method":"$/progress","params":{"token":` + token + `,"value":` +
						value + `}}`)
				case want[0] == '-':
					if got := w.read(); !strings.Contains(got, `"code":`+want+`,`) {
						t.Errorf("got %s, want the error %s", got, want)
					}
				default:
					w.expect(result(want, "1"))
				}
			}
		})
	}
	if err := farcall.ReportWorkDone(t.Context(), farcall.WorkDone{}); err != nil {
		t.Errorf("outside a handler: %v", err)
	}
}

// A dialect without a ProgressValue, such as MCP's, has no such thing, at neither end.
func TestWorkDoneOfOtherDialects(t *testing.T) {
	w := newWire(t, stream.NDJSON, indexMux(), metaDialect())
	w.write(`{"jsonrpc":"2.0","method":"index","params":{"files":2,"workDoneToken":"t"},"id":1}`)
	w.expect(result(`"done"`, "1"))
	ctx := farcall.OnWorkDone(t.Context(), func(farcall.WorkDone) { t.Error("work done") })
	done := make(chan error, 1)
	go func() { done <- w.p.Call(ctx, "m", nil, nil) }()
	w.expect(`{"jsonrpc":"2.0","method":"m","id":1}`)
	w.write(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"work-1",`+
		`"kind":"begin"}}`, result("1", "1"))
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// both is a client that asks for both kinds of progress, and what it received.
type both struct{ work, partial []string }

func (b *both) ask(ctx context.Context) context.Context {
	return farcall.OnWorkDone(ctx, func(w farcall.WorkDone) {
		percentage := -1
		if w.Percentage != nil {
			percentage = *w.Percentage
		}
		b.work = append(b.work, fmt.Sprint(w.Kind, w.Title, percentage, w.Message))
	})
}

// Our ends with each other: both are asked, over every transport, and while a handler waits for the
// other.
func TestWorkDone(t *testing.T) {
	want := []string{"beginindex0", "report50", "end-1"}
	test := func(t *testing.T, c farcall.Caller) {
		t.Helper()
		for range 2 {
			var b both
			got, err := farcall.Call[string](b.ask(t.Context()), c, "index", indexing{Files: 2})
			if err != nil || got != "done" || !slices.Equal(b.work, want) {
				t.Errorf("%q, %v, told %q", got, err, b.work)
			}
		}
		if got, err := farcall.Call[string](t.Context(), c, "index", indexing{Files: 2}); err != nil ||
			got != "done" {
			t.Errorf("without asking: %q, %v", got, err)
		}
	}
	each(t, func(t *testing.T, a, b farcall.Transport) {
		t.Helper()
		mux := indexMux()
		farcall.Handle(mux, "back", func(ctx context.Context, _ struct{}) (bool, error) {
			test(t, farcall.CallerFrom(ctx))
			return true, nil
		})
		p, _ := connect(t, a, b, indexMux(), mux, nil, nil)
		test(t, p)
		if _, err := farcall.Call[bool](t.Context(), p, "back", nil); err != nil {
			t.Error(err)
		}
	})
	t.Run("http", func(t *testing.T) { test(t, httpClient(t, indexMux(), nil)) })
	t.Run("responder", func(t *testing.T) { // nothing can be pushed
		got := farcall.NewResponder(indexMux(), nil).Respond(t.Context(), nil,
			[]byte(`{"jsonrpc":"2.0","method":"index","params":{"files":1,"workDoneToken":1},"id":1}`), nil)
		if string(got) != result(`"done"`, "1") {
			t.Errorf("%s", got)
		}
	})
}

// A call may ask for its work and its partial results; their tokens differ.
func TestWorkDoneAndProgress(t *testing.T) {
	for _, partial := range []bool{false, true} {
		o := &farcall.Options{Dialect: farcall.Dialect{
			CancelMethod: "$/cancelRequest", CancelID: "id", ProgressMethod: "$/progress",
			ProgressToken: "token", ProgressValue: "value",
			PartialResults: partial,
		}}
		mux := farcall.NewMux()
		farcall.Handle(mux, "find", func(ctx context.Context, p struct{ Q string }) (bool, error) {
			if err := farcall.ReportWorkDone(ctx, farcall.WorkDone{Title: p.Q}); err != nil {
				return false, err
			}
			return true, farcall.Progress(ctx, p.Q)
		})
		a, b := farcall.Pipe()
		p, _ := connect(t, a, b, nil, mux, o, o)
		var told both
		ctx := farcall.OnProgress(told.ask(t.Context()), func(v jsonrpc.Raw) {
			told.partial = append(told.partial, string(v))
		})
		if err := p.Call(ctx, "find", map[string]string{"Q": "x"}, nil); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(told); got != `{[beginx-1 end-1] ["x"]}` {
			t.Errorf("partial results %v: %s", partial, got)
		}
	}
}

// What a hostile server sends: only values of LSP for a call that has asked and has not ended are
// taken.
func TestWorkDoneFromForeignPeer(t *testing.T) {
	w := newWire(t, stream.NDJSON, nil, nil)
	var told both
	call := func(ctx context.Context, params any) chan error {
		done := make(chan error, 1)
		go func() { done <- w.p.Call(ctx, "m", params, nil) }()
		return done
	}
	progress := func(token, value string) string {
		return `{"jsonrpc":"2.0","method":"$/progress","params":{"token":` + token + `,"value":` +
			value + `}}`
	}
	asking := call(told.ask(t.Context()), nil)
	w.expect(`{"jsonrpc":"2.0","method":"m","params":{"workDoneToken":"work-1"},"id":1}`)
	other := call(t.Context(), map[string]int{"a": 1}) // nothing on the wire when unused
	w.expect(`{"jsonrpc":"2.0","method":"m","params":{"a":1},"id":2}`)
	list := call(told.ask(t.Context()), []int{1}) // a list has no place for it
	w.expect(`{"jsonrpc":"2.0","method":"m","params":[1],"id":3}`)

	report := `{"kind":"report","message":"%s"}`
	for i, token := range []string{
		`1`, `2`, `"work-2"`, `"work-4"`, `"work-"`, `"work--1"`, `"work-1.0"`,
		`"work-99999999999999999999"`, `"Work-1"`, `"1"`, `"work-1 "`,
		`null`, `true`, `{"work-1":1}`, `["work-1"]`, `1e400`,
		`"work-` + strings.Repeat("1", 1<<16) + `"`, `"\ud800"`,
	} {
		w.write(progress(token, fmt.Sprintf(report, fmt.Sprint("token ", i))))
	}
	for _, value := range []string{
		`null`, `1`, `"begin"`, `[]`, `{}`, `{"kind":7}`, `{"kind":"done"}`,
		`{"kind":"report","percentage":"7"}`, `{"kind":"report","percentage":1e99}`,
	} {
		w.write(progress(`"work-1"`, value))
	}
	w.write(progress(`"\u0077ork-1"`, `{"kind":"begin","title":"T","percentage":0,"else":{}}`),
		progress(`"work-1"`, `{"kind":"end","message":"M"}`))
	w.write(result("1", "1"), progress(`"work-1"`, fmt.Sprintf(report, "late")), result("1", "2"),
		result("1", "3"))
	for _, done := range []chan error{asking, other, list} {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if got := fmt.Sprint(told.work); got != "[beginT0 end-1M]" {
		t.Errorf("told %s", got)
	}
}

// Who does not read delays no handler, and the memory that its reports take is bounded.
func TestWorkDoneThatIsNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reported := make(chan error, 1)
		mux := farcall.NewMux()
		farcall.Handle(mux, "work", func(ctx context.Context, _ struct{}) (bool, error) {
			var err error
			for i := 0; i < 10_000 && err == nil; i++ {
				err = farcall.ReportWorkDone(ctx, farcall.WorkDone{Message: strings.Repeat("x", 1000)})
			}
			reported <- err
			return true, err
		})
		a, b := farcall.Pipe()
		p := farcall.NewPeer(b, mux, nil)
		if err := a.Write(
			[]byte(`{"jsonrpc":"2.0","method":"work","params":{"workDoneToken":1},"id":1}`)); err != nil {
			t.Fatal(err)
		}
		if err := <-reported; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		sent, last := 0, ""
		for !strings.Contains(last, `"id":1`) {
			frame, err := a.Read()
			if err != nil {
				t.Fatal(err)
			}
			before := last
			last = string(frame)
			if sent += len(frame); strings.Contains(last, `"id":1`) && !strings.Contains(before, `"end"`) {
				t.Errorf("before the answer: %.100s", before)
			}
		}
		if sent > 3<<20 {
			t.Errorf("%d bytes of reports", sent)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		_ = a.Close()
	})
}

// A report after the handler has returned goes nowhere.
func TestWorkDoneAfterTheCall(t *testing.T) {
	late := make(chan context.Context, 1)
	mux := farcall.NewMux()
	farcall.Handle(mux, "work", func(ctx context.Context, _ struct{}) (bool, error) {
		late <- ctx
		return true, farcall.ReportWorkDone(ctx, farcall.WorkDone{})
	})
	w := newWire(t, stream.NDJSON, mux, nil)
	w.write(`{"jsonrpc":"2.0","method":"work","params":{"workDoneToken":1},"id":1}`)
	for _, kind := range []string{`"begin"`, `"end"`, `"result":true`} {
		if got := w.read(); !strings.Contains(got, kind) {
			t.Errorf("got %s, want %s", got, kind)
		}
	}
	ctx := <-late
	<-ctx.Done()
	if err := farcall.ReportWorkDone(ctx, farcall.WorkDone{}); err == nil {
		t.Error("no error")
	}
	w.write(`{"jsonrpc":"2.0","method":"none","id":2}`)
	w.expect(refusal(-32601, "Method not found", "2"))
}

func ExampleReportWorkDone() {
	mux := farcall.NewMux()
	farcall.Handle(mux, "workspace/index",
		func(ctx context.Context, p struct{ Files []string }) (int, error) {
			for i, name := range p.Files {
				err := farcall.ReportWorkDone(ctx,
					farcall.WorkDone{Title: "Indexing", Message: name, Percentage: new(100 * i / len(p.Files))})
				if err != nil {
					return 0, err
				}
			}
			return len(p.Files), nil // the end is reported
		})
	a, b := farcall.Pipe()
	client, server := farcall.NewPeer(a, nil, nil), farcall.NewPeer(b, mux, nil)

	ctx := farcall.OnWorkDone(context.Background(), func(w farcall.WorkDone) {
		if w.Kind == "end" {
			fmt.Println("end")
			return
		}
		fmt.Printf("%s %s %d%%\n", w.Kind, w.Message, *w.Percentage)
	})
	n, err := farcall.Call[int](ctx, client, "workspace/index",
		map[string][]string{"Files": {"a.go", "b.go"}})
	fmt.Println(n, err)
	_, _ = client.Close(), server.Close()
	// Output:
	// begin a.go 0%
	// report b.go 50%
	// end
	// 2 <nil>
}
