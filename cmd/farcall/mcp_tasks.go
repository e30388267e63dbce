package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/target"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// taskVerbs lists what can be done with tasks; it is part of the help.
var taskVerbs = helpText("parts/taskVerbs.txt")

func newMCPTasksCmd(e *env) *cobra.Command {
	m := newMCPRemote(e)
	var o taskOptions
	cmd := command("tasks TARGET start|list|get|wait|result|cancel [...]",
		"Call tools as tasks, and follow tasks", func(cmd *cobra.Command, args []string) error {
			t, rest, err := m.target(cmd, args)
			if err != nil {
				return err
			}
			return m.tasks(cmd.Context(), t, rest, o)
		})
	m.flags(cmd)
	m.askFlags(cmd)
	m.outputFlag(cmd)
	f := cmd.Flags()
	f.DurationVar(&o.ttl, "ttl", 0,
		"start: how long the server shall keep the task; 0: as long as it likes")
	f.BoolVarP(&o.wait, "wait", "w", false,
		"start: wait for the end of the task and print its result, too")
	return cmd
}

type taskOptions struct {
	ttl  time.Duration
	wait bool
}

// taskWords are what is to be done, and with what: a task, or a tool.
type taskWords struct {
	verb, object string
	arguments    toolArguments // of a tool
}

func (m *mcpRemote) taskWords(
	ctx context.Context, t *target.Target, words []string,
) (w taskWords, err error) {
	words = slices.Concat(words, []string{"", ""}) // so that there are two at least
	w.verb, w.object = words[0], words[1]
	more := words[2:]
	switch w.verb {
	case "":
		return w, usagef("There are:\n"+taskVerbs, "what is to be done with tasks?")
	case "list":
		if w.object != "" {
			return w, usagef("", "list takes nothing more, not %q", w.object)
		}
	case "start":
		if w.object == "" {
			return w, usagef("For example: "+commandLine("farcall mcp tasks", t, "start TOOL name=value"),
				"no tool")
		}
		w.arguments, err = m.arguments(ctx, more[:len(more)-2])
		return w, err
	case "get", "wait", "result", "cancel":
		if w.object == "" {
			return w, usagef("For example: "+commandLine("farcall mcp tasks", t, w.verb+" ID"),
				"no id of a task")
		}
	default:
		return w, usagef("There are:\n"+taskVerbs, "%q is not an action on tasks", w.verb)
	}
	if len(more) > 2 {
		return w, usagef("Run 'farcall mcp tasks --help' for its arguments.",
			"there is no place for %q", more[0])
	}
	return w, nil
}

func (m *mcpRemote) tasks(
	ctx context.Context, t *target.Target, words []string, o taskOptions,
) error {
	w, err := m.taskWords(ctx, t, words)
	if err != nil {
		return err
	}
	return m.with(ctx, t, func(ctx context.Context, s *mcpSession) error {
		if err := s.hasTasks(); err != nil {
			return err
		}
		switch w.verb {
		case "start":
			return m.taskStart(ctx, s, &w, o)
		case "list":
			return m.taskList(ctx, s)
		case "wait":
			return m.taskWait(ctx, s, w.object)
		case "result":
			return m.taskResult(ctx, s, w.object)
		case "cancel":
			return m.taskCancel(ctx, s, w.object)
		}
		return m.taskGet(ctx, s, w.object)
	}, func(o *mcp.ClientOptions) { o.Tasks = true })
}

// hasTasks fails when the server has no tasks, or the revision.
func (s *mcpSession) hasTasks() error {
	info := s.Server()
	r := era.Lookup(info.Revision)
	switch {
	case r != nil && !r.LegacyTasks && !r.TasksExtension:
		return &exitError{
			code: exitAnswered,
			err: fmt.Errorf("there are no tasks in revision %s, which was agreed on with %s", info.Revision,
				s.target), hint: "--era auto speaks the newest revision that the server has.",
		}
	case info.Capabilities.Tasks == nil && info.Capabilities.Extensions[spec.ExtensionTasks] == nil:
		return &exitError{
			code: exitAnswered, err: fmt.Errorf("%s has no tasks", s.target),
			hint: "'farcall mcp call' calls its tools.",
		}
	}
	return nil
}

func (m *mcpRemote) taskStart(
	ctx context.Context, s *mcpSession, w *taskWords, o taskOptions,
) error {
	tool := w.object
	arguments, near, err := s.fit(ctx, tool, w.arguments)
	if err != nil {
		return err
	}
	task, err := s.StartTask(ctx, tool, arguments, o.ttl)
	if err = cmp.Or(s.asked.failed(), err); err != nil {
		return withHint(s.failure(ctx, tool, err), near)
	}
	if task.TaskID == "" {
		m.screen.printf("The server answered at once, without a task.")
		r, err := decodeResult[mcp.ToolResult](tool, task.Result)
		if err != nil {
			return err
		}
		return withHint(m.printToolResult(tool, r), near)
	}
	if o.wait {
		m.screen.printf("%s is %s", tame(task.TaskID), tame(task.Status))
		return m.taskWait(ctx, s, task.TaskID)
	}
	if err := m.printTask(task); err != nil || m.asJSON {
		return err
	}
	switch {
	case s.target.Kind == target.Command:
		m.screen.printf(
			"The command ends with farcall, and the task with it: start --wait waits for its result.")
	case eraName(s.Server()) == "legacy":
		m.screen.printf(
			"The session ends with farcall, and its tasks may: start --wait waits for its result.")
	default:
		m.screen.printf("'farcall mcp tasks %s wait %s' waits for its result.", s.target,
			tame(task.TaskID))
	}
	return nil
}

func (m *mcpRemote) taskList(ctx context.Context, s *mcpSession) error {
	info := s.Server()
	if r := era.Lookup(info.Revision); r != nil && !r.LegacyTasks {
		return &exitError{
			code: exitAnswered,
			err:  fmt.Errorf("servers do not list their tasks in revision %s", info.Revision),
			hint: "Note the id when a task is started. --era legacy can list them, if the server does.",
		}
	}
	if info.Capabilities.Tasks.List == nil {
		return &exitError{code: exitAnswered, err: fmt.Errorf("%s does not list its tasks", s.target)}
	}
	all, err := s.Tasks(ctx)
	if err != nil {
		return s.failure(ctx, "list", err)
	}
	if m.asJSON {
		l := &mcpList{key: "tasks"}
		for _, t := range all {
			r, err := jsonv2.Append(nil, t)
			if err != nil {
				return err
			}
			l.items = append(l.items, r)
		}
		return m.printJSON(l.document())
	}
	var rows [][]string
	for _, t := range all {
		rows = append(rows,
			[]string{tame(t.TaskID), tame(t.Status), tame(t.CreatedAt), firstLine(t.StatusMessage)})
	}
	return m.table(rows, "The server has no tasks.")
}

func (m *mcpRemote) taskGet(ctx context.Context, s *mcpSession, id string) error {
	task, err := s.Task(ctx, id)
	if err != nil {
		return s.failure(ctx, "get "+id, err)
	}
	return m.printTask(task)
}

func (m *mcpRemote) taskCancel(ctx context.Context, s *mcpSession, id string) error {
	err := s.CancelTask(ctx, id)
	if err != nil {
		return s.failure(ctx, "cancel "+id, err)
	}
	return m.taskGet(ctx, s, id)
}

func (m *mcpRemote) taskWait(ctx context.Context, s *mcpSession, id string) error {
	r, err := s.WaitTask(ctx, id)
	if err = cmp.Or(s.asked.failed(), err); err != nil {
		return s.taskFailure(ctx, id, err)
	}
	return m.printToolResult(id, r)
}

// taskFailure is the exit for a task without a result.
func (s *mcpSession) taskFailure(ctx context.Context, id string, err error) error {
	var wire *jsonrpc.Error
	if !errors.As(err, &wire) && ctx.Err() == nil {
		if task, again := s.Task(ctx, id); again == nil && spec.TaskEnded(task.Status) {
			return &exitError{code: exitAnswered, err: fmt.Errorf("%s: %s", id, plainWords(err))}
		}
	}
	return s.failure(ctx, id, err)
}

func (m *mcpRemote) taskResult(ctx context.Context, s *mcpSession, id string) error {
	task, err := s.Task(ctx, id)
	if err != nil {
		return s.failure(ctx, "result "+id, err)
	}
	if !spec.TaskEnded(task.Status) {
		return &exitError{
			code: exitFailure,
			err:  fmt.Errorf("%s has no result yet: it is %s", id, tame(task.Status)),
			hint: "wait instead of result waits for it.",
		}
	}
	return m.taskWait(ctx, s, id)
}

// printTask prints the state of a task.
func (m *mcpRemote) printTask(t *spec.DetailedTask) error {
	if m.asJSON {
		return m.printValue(t)
	}
	rows := [][]string{{"task", tame(t.TaskID)}, {"status", tame(t.Status)}}
	add := func(name, value string) {
		if value != "" {
			rows = append(rows, []string{name, tame(value)})
		}
	}
	add("message", firstLine(t.StatusMessage))
	add("created", t.CreatedAt)
	add("updated", t.LastUpdatedAt)
	if t.TTLMS != nil {
		add("kept for", (time.Duration(*t.TTLMS) * time.Millisecond).String())
	}
	var asks []string
	for _, r := range t.InputRequests {
		asks = append(asks, r.Method)
	}
	slices.Sort(asks)
	add("asks for", strings.Join(asks, ", "))
	if t.Error != nil {
		add("error", fmt.Sprintf("%d: %s", int(t.Error.Code), t.Error.Message))
	}
	return m.facts(rows)
}
