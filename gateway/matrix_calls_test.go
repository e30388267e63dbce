package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/spec"
)

func whileCalled() []feature {
	return []feature{
		{"progress", works, checkProgress},
		{"progress with a message", lacking(func(r *era.Revision) bool {
			return r.ProgressMessage
		}, noMessage), checkProgressMessage},
		{"logging with levels", works, checkLogs},
		{"cancellation", works, checkCancel},
		{"list-changed", works, checkListChanged},
		{"subscriptions", works, checkSubscription},
	}
}

func questions() []feature {
	return []feature{
		{"elicitation: a form", asking(func(r *era.Revision) bool { return r.Elicitation }), checkForm},
		{"elicitation: an address", asking(func(r *era.Revision) bool {
			return r.ElicitationURL
		}), checkURL},
		{"elicitation: an address first (-32042)", func(client, server *era.Revision) *note {
			switch {
			case server.URLElicitationRequired == 0 && client.URLElicitationRequired == 0:
				return ownCode
			case server.URLElicitationRequired == 0:
				return takenFor
			case client.URLElicitationRequired == 0 && !client.ElicitationURL:
				return bareError
			}
			return nil
		}, checkLocked},
		{"sampling", works, checkSampling},
		{"roots", works, checkRoots},
	}
}

func others() []feature {
	return []feature{
		{"tasks", forTasks, checkTasks},
		{"tasks that ask", func(client, server *era.Revision) *note {
			if n := asking(func(r *era.Revision) bool { return r.Elicitation })(client, server); n != nil {
				return n
			}
			return forTasks(client, server)
		}, checkInterview},
		{"cancellation of tasks", forTasks, checkEndless},
		{"errors", works, checkErrors},
		{"caching hints", func(client, server *era.Revision) *note {
			switch {
			case client.Handshake:
				return noHints
			case server.Handshake:
				return noHint
			}
			return nil
		}, checkCaching},
		{"methods of extensions", works, checkCustom},
		{"trace context", works, checkTrace},
	}
}

// forTasks is what becomes of tasks.
func forTasks(client, server *era.Revision) *note {
	switch {
	case !hasTasks(client):
		return waits
	case !hasTasks(server):
		return noTasks
	}
	return nil
}

func progress(
	ctx context.Context, v *matrixClient,
) (reports []spec.ProgressNotificationParams, err error) {
	ctx = mcp.OnProgress(ctx, func(p spec.ProgressNotificationParams) { reports = append(reports, p) })
	text, err := v.tool(ctx, "count", nil)
	v.logged()
	return reports, errors.Join(err, differ("count", text, "counted"))
}

func checkProgress(ctx context.Context, v *matrixClient, _ *note) error {
	reports, err := progress(ctx, v)
	if err != nil {
		return err
	}
	var got []string
	for _, r := range reports {
		total := 0.0
		if r.Total != nil {
			total = *r.Total
		}
		got = append(got, fmt.Sprint(r.Progress, "/", total))
	}
	return differ("progress", got, "[1/2 2/2]")
}

func checkProgressMessage(ctx context.Context, v *matrixClient, want *note) error {
	reports, err := progress(ctx, v)
	if err != nil {
		return err
	}
	var got []string
	for _, r := range reports {
		got = append(got, r.Message)
	}
	if want != nil {
		return differ("messages", got, []string{"", ""})
	}
	return differ("messages", got, "[one two]")
}

func checkLogs(ctx context.Context, v *matrixClient, _ *note) error {
	v.logged()
	for _, step := range []struct {
		level string
		want  []string
	}{
		{spec.LogWarning, []string{`error counter "loud"`}},
		{spec.LogEmergency, nil},
		// before which what is too much of the last step would be
		{spec.LogDebug, []string{`debug counter "quiet"`, `error counter "loud"`}},
	} {
		if err := v.SetLogLevel(ctx, step.level); err != nil {
			return err
		}
		if _, err := v.tool(ctx, "count", nil); err != nil {
			return err
		}
		var got []string
		for len(got) < len(step.want) {
			select {
			case line := <-v.logs:
				got = append(got, line)
			case <-ctx.Done():
				return fmt.Errorf("logged from %s on: %q", step.level, got)
			}
		}
		if err := differ("logged from "+step.level+" on", got, step.want); err != nil {
			return err
		}
	}
	return nil
}

func checkCancel(ctx context.Context, v *matrixClient, _ *note) error {
	return cancelled(ctx, v, "forever", v.name)
}

// cancelled calls a tool that has no end, and cancels the call.
func cancelled(ctx context.Context, v *matrixClient, tool, as string) error {
	calling, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := v.CallTool(calling, tool, playText{v.name})
		ended <- err
	}()
	err := v.stage.wait(ctx, "begun "+as)
	cancel()
	if got := <-ended; !errors.Is(got, context.Canceled) {
		return errors.Join(err, fmt.Errorf("a call that was cancelled: %w", got))
	}
	return errors.Join(err, v.stage.wait(ctx, "gone "+as))
}

// listening has the server tell of changes while f runs.
func listening(
	ctx context.Context, v *matrixClient, filter spec.SubscriptionFilter, f func() error,
) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- v.Listen(ctx, filter) }()
	var err error
	select {
	case <-v.listening:
		err = f()
	case err = <-ended:
		return fmt.Errorf("listen: %w", err)
	case <-ctx.Done():
		err = errors.New("the server did not say that clients may listen")
	}
	cancel()
	<-ended
	return err
}

func checkListChanged(ctx context.Context, v *matrixClient, _ *note) error {
	filter := spec.SubscriptionFilter{
		ToolsListChanged: true, PromptsListChanged: true,
		ResourcesListChanged: true,
	}
	return listening(ctx, v, filter, func() error {
		for len(v.changed) > 0 {
			<-v.changed // of the client before, perhaps
		}
		v.stage.tell("change for-" + v.name)
		missing := map[string]bool{"tools": true, "prompts": true, "resources": true}
		// Each process of the server says so, and may be asked before another one has
		// changed.
		for len(missing) > 0 {
			select {
			case kind := <-v.changed:
				description, err := described(ctx, v, kind)
				if err != nil {
					return err
				}
				if description == "for-"+v.name {
					delete(missing, kind)
				}
			case <-ctx.Done():
				return fmt.Errorf("no notification of changes to %v", missing)
			}
		}
		return nil
	})
}

// described returns the description of what changes in a list.
func described(ctx context.Context, v *matrixClient, kind string) (string, error) {
	switch kind {
	case "tools":
		t, err := findTool(ctx, v, "extra")
		return t.Description, err
	case "prompts":
		all, err := v.Prompts(ctx)
		for _, p := range all {
			if p.Name == "extra" {
				return p.Description, err
			}
		}
		return "", err
	}
	all, err := v.Resources(ctx)
	for _, r := range all {
		if r.Name == "extra" {
			return r.Description, err
		}
	}
	return "", err
}

func checkSubscription(ctx context.Context, v *matrixClient, _ *note) error {
	return listening(ctx, v, spec.SubscriptionFilter{ResourceSubscriptions: []string{watched}},
		func() error {
			v.stage.tell("touch note:///readme") // which no client follows
			v.stage.tell("touch " + watched)
			select {
			case uri := <-v.updated:
				return differ("updated", uri, watched)
			case <-ctx.Done():
				return errors.New("no notification of the change")
			}
		})
}

// refused checks what a client gets of a tool that cannot ask it.
func refused(v *matrixClient, want *note, err error) error {
	if asked := v.asked(); len(asked) > 0 {
		return fmt.Errorf("the client was asked %q", asked)
	}
	if want == toldError {
		wire := (*jsonrpc.Error)(nil)
		if !errors.As(err, &wire) || wire.Code != jsonrpc.InvalidRequest ||
			!strings.Contains(wire.Message, "elicitation") {
			return fmt.Errorf("got %w, want an error that names the capability", err)
		}
		return nil
	}
	if text, ok := failed(err); !ok || !strings.Contains(text, "cannot be asked") {
		return fmt.Errorf("got %w, want a failure that says why", err)
	}
	return nil
}

func checkForm(ctx context.Context, v *matrixClient, want *note) error {
	v.asked()
	text, err := v.tool(ctx, "greet", playText{v.name})
	if want != nil {
		return refused(v, want, err)
	}
	return errors.Join(err, differ("asked", v.asked(), "[Who are you, "+v.name+"?]"),
		differ("greet", text, "Hello, "+v.name))
}

func checkURL(ctx context.Context, v *matrixClient, want *note) error {
	v.asked()
	text, err := v.tool(ctx, "visit", nil)
	if want != nil {
		return refused(v, want, err)
	}
	return errors.Join(err, differ("asked", v.asked(), "[visit "+signIn+"]"),
		differ("visit", text, "signed in"))
}

func checkLocked(ctx context.Context, v *matrixClient, want *note) error {
	v.asked()
	v.tap.forget()
	text, err := v.tool(ctx, "locked", playText{v.name})
	if want == ownCode || want == bareError {
		_, wire, tapErr := v.tap.answer(ctx, spec.MethodToolsCall)
		if wire == nil {
			return errors.Join(fmt.Errorf("the tool did not refuse: %w", err), tapErr)
		}
		return errors.Join(differ("asked", v.asked(), "[]"),
			differ("code", int(wire.Code),
				int(era.Code(&jsonrpc.Error{Code: spec.URLElicitationRequired}, era.LatestLegacy(),
					v.client).Code)),
			differ("data has the address", strings.Contains(string(wire.Data), signIn), true))
	}
	return errors.Join(err, differ("asked", v.asked(), "[visit "+signIn+"]"),
		differ("locked", text, "signed in"))
}

func checkSampling(ctx context.Context, v *matrixClient, _ *note) error {
	v.asked()
	text, err := v.tool(ctx, "capital", playText{v.name})
	return errors.Join(err, differ("asked", v.asked(), "[The capital of "+v.name+"?]"),
		differ("answer", text, "ask "+v.name))
}

func checkRoots(ctx context.Context, v *matrixClient, _ *note) error {
	text, err := v.tool(ctx, "where", nil)
	return errors.Join(err, differ("roots", text, "1 file:///"+v.name))
}

func checkTasks(ctx context.Context, v *matrixClient, want *note) error {
	switch want {
	case waits, noTasks:
		_, err := v.StartTask(ctx, "work", playText{v.name}, 0)
		if err == nil || !strings.Contains(err.Error(), "has no tasks") {
			return fmt.Errorf("a task was begun: %w", err)
		}
		work, err := v.tool(ctx, "work", playText{v.name})
		job, err2 := v.tool(ctx, "job", playText{v.name})
		return errors.Join(err, err2, differ("work", work, "worked on "+v.name),
			differ("job", job, "worked on "+v.name))
	}
	return errors.Join(runTask(ctx, v, "work"), runTask(ctx, v, "job"))
}

// runTask runs a tool as a task, to its end.
func runTask(ctx context.Context, v *matrixClient, tool string) error {
	task, err := v.StartTask(ctx, tool, playText{v.name}, 0)
	if err != nil {
		return err
	}
	if task.TaskID == "" {
		return fmt.Errorf("%s: no task was begun", tool)
	}
	ended, err := untilTask(ctx, v, task.TaskID, func(t *spec.DetailedTask) bool {
		return spec.TaskEnded(t.Status)
	})
	if err != nil {
		return err
	}
	r, err := v.WaitTask(ctx, task.TaskID)
	if err != nil {
		return err
	}
	return errors.Join(differ(tool, textOf(r), "worked on "+v.name),
		differ("status", ended.Status, spec.TaskCompleted))
}

// untilTask asks for a task until holds.
func untilTask(
	ctx context.Context, v *matrixClient, id string, holds func(*spec.DetailedTask) bool,
) (*spec.DetailedTask, error) {
	for {
		t, err := v.Task(ctx, id)
		if err != nil || holds(t) {
			return t, err
		}
	}
}

func checkInterview(ctx context.Context, v *matrixClient, want *note) error {
	v.asked()
	if want != nil {
		text, err := v.tool(ctx, "interview", playText{v.name})
		if want != waits && want != noTasks {
			return refused(v, want, err)
		}
		return errors.Join(err, differ("asked", v.asked(), "[Who are you, "+v.name+"?]"),
			differ("interview", text, "Hello, "+v.name))
	}
	t, err := v.StartTask(ctx, "interview", playText{v.name}, 0)
	if err == nil {
		t, err = untilTask(ctx, v, t.TaskID, func(t *spec.DetailedTask) bool {
			return t.Status != spec.TaskWorking
		})
	}
	if err != nil {
		return err
	}
	if t.Status != spec.TaskInputRequired {
		return fmt.Errorf("it asks for nothing: %+v", t)
	}
	if v.client.TasksExtension {
		// at once, which WaitTask does not do: it asks again when the server's interval is over
		responses := map[string]any{}
		for key := range t.InputRequests {
			responses[key] = map[string]any{"action": spec.ElicitAccept, "content": playName{v.name}}
			v.note("Who are you, " + v.name + "?")
		}
		if err := v.Request(ctx, spec.MethodTasksUpdate,
			map[string]any{"taskId": t.TaskID, "inputResponses": responses}, nil); err != nil {
			return err
		}
		if t, err = untilTask(ctx, v, t.TaskID, func(t *spec.DetailedTask) bool {
			return spec.TaskEnded(t.Status)
		}); err != nil {
			return err
		}
	}
	r, err := v.WaitTask(ctx, t.TaskID)
	if err != nil {
		return err
	}
	return errors.Join(differ("asked", v.asked(), "[Who are you, "+v.name+"?]"),
		differ("interview", textOf(r), "Hello, "+v.name))
}

func checkEndless(ctx context.Context, v *matrixClient, want *note) error {
	if want != nil {
		return cancelled(ctx, v, "endless", "endless "+v.name)
	}
	t, err := v.StartTask(ctx, "endless", playText{v.name}, 0)
	if err != nil {
		return err
	}
	if err := v.stage.wait(ctx, "begun endless "+v.name); err != nil {
		return err
	}
	if err := v.CancelTask(ctx, t.TaskID); err != nil {
		return err
	}
	t, err = untilTask(ctx, v, t.TaskID, func(t *spec.DetailedTask) bool {
		return spec.TaskEnded(t.Status)
	})
	if err != nil {
		return err
	}
	return errors.Join(differ("status", t.Status, spec.TaskCancelled),
		v.stage.wait(ctx, "gone endless "+v.name))
}

func checkErrors(ctx context.Context, v *matrixClient, _ *note) error {
	v.tap.forget()
	_, err := v.Read(ctx, "note:///nowhere/at/all")
	_, wire, tapErr := v.tap.answer(ctx, spec.MethodResourcesRead)
	if wire == nil {
		return errors.Join(fmt.Errorf("a resource that is not there: %w", err), tapErr)
	}
	_, missing := v.Read(ctx, "note:///word") // the template matches
	_, wire2, tapErr := v.tap.answer(ctx, spec.MethodResourcesRead)
	if wire2 == nil {
		return errors.Join(fmt.Errorf("a resource that the server does not have: %w", missing), tapErr)
	}
	_, unknown := v.CallTool(ctx, "nothing", nil)
	_, own := v.CallTool(ctx, "refuse", nil)
	_, toolErr := v.tool(ctx, "fail", nil)
	text, _ := failed(toolErr)
	_, invalid := v.CallTool(ctx, "add", map[string]any{"a": "x"})
	data := ""
	if e := (*jsonrpc.Error)(nil); errors.As(own, &e) {
		data = string(e.Data) + e.Message
	}
	return errors.Join(
		codeIs("a resource that is not there", err, era.Latest().ResourceNotFound),
		differ("its code on the wire", int(wire.Code), int(v.client.ResourceNotFound)),
		codeIs("a resource that the server does not have", missing, era.Latest().ResourceNotFound),
		differ("its code on the wire", int(wire2.Code), int(v.client.ResourceNotFound)),
		differ("its uri", string(scan.Member(wire2.Data, "uri")), `"note:///word"`),
		codeIs("a tool that is not there", unknown, jsonrpc.InvalidParams),
		codeIs("an error of the server's own", own, ownError),
		differ("its data and text", data, `{"day":"Sunday"}not today`),
		differ("the failure of a tool", text, "the disk is full"),
		differ("arguments that do not fit: protocol error", invalid != nil, false),
		codeIs("a method that is not there", v.Request(ctx, "example/nothing", nil, nil),
			jsonrpc.MethodNotFound))
}

func checkCaching(ctx context.Context, v *matrixClient, want *note) error {
	for method, params := range map[string]any{
		spec.MethodToolsList: nil, spec.MethodResourcesList: nil, spec.MethodResourcesTemplatesList: nil,
		spec.MethodPromptsList:   nil,
		spec.MethodResourcesRead: map[string]string{"uri": "note:///readme"},
	} {
		v.tap.forget()
		if err := v.Request(ctx, method, params, nil); err != nil {
			return err
		}
		result, _, err := v.tap.answer(ctx, method)
		if err != nil {
			return err
		}
		ttl, scope := string(scan.Member(result, "ttlMs")), string(scan.Member(result, "cacheScope"))
		switch want {
		case noHints:
			err = differ(method, ttl+" "+scope, " ")
		case noHint:
			err = differ(method, ttl+" "+scope, `0 "private"`)
		default:
			ms, _ := strconv.ParseInt(ttl, 10, 64)
			if most := playTTL.Milliseconds(); ms > most || ms < most-60_000 || scope != `"public"` {
				err = fmt.Errorf("%s: ttlMs %s, cacheScope %s", method, ttl, scope)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkTrace has the server say the trace context that the client has sent: all of it, whatever the
// transports.
func checkTrace(ctx context.Context, v *matrixClient, _ *note) error {
	want := farcall.Trace{
		Parent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		State:  "a=1,b=2", Baggage: "user=" + v.name,
	}
	ctx = farcall.WithTrace(ctx, want)
	text, err := v.tool(ctx, "trace", nil)
	var got farcall.Trace
	return errors.Join(err, differ("trace of a tool", text, want),
		v.Request(ctx, "example/trace", nil, &got), differ("trace of an extension's method", got, want))
}

func checkCustom(ctx context.Context, v *matrixClient, _ *note) error {
	var out struct {
		N int `json:"n"`
	}
	err := v.Request(ctx, "example/double", map[string]int{"n": 21}, &out)
	return errors.Join(err, differ("double", out.N, 42))
}
