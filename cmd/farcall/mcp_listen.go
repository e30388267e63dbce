package main

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/target"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

func newMCPListenCmd(e *env) *cobra.Command {
	m := newMCPRemote(e)
	var resources []string
	var count int
	cmd := m.onTarget("listen TARGET", "Print what a server sends unasked: changes, and its log", 0,
		func(ctx context.Context, t *target.Target, _ []string) error {
			return m.listen(ctx, t, resources, count)
		})
	f := cmd.Flags()
	f.StringArrayVar(&resources, "resource", nil,
		"tell of changes of the resource with this `URI`; can be repeated")
	f.IntVarP(&count, "count", "n", 0, "end after so many events; 0 for no limit")
	return cmd
}

// event is one line of farcall mcp listen as JSON.
type event struct {
	Event string                                 `json:"event"`
	Kind  string                                 `json:"kind,omitzero"`
	URI   string                                 `json:"uri,omitzero"`
	Log   *spec.LoggingMessageNotificationParams `json:"log,omitzero"`
}

// listener prints events.
type listener struct {
	*mcpRemote
	quota
}

// event prints one event, as a line of text or of JSON.
func (l *listener) event(ev event, text string) {
	_ = l.emit(func() error { // a failure ends the listening
		if !l.asJSON {
			_, err := l.stdout.Write([]byte(text + "\n"))
			return err
		}
		raw, err := jsonv2.Append(nil, ev)
		if err != nil {
			return err
		}
		return l.printLine(raw)
	})
}

func (m *mcpRemote) listen(
	ctx context.Context, t *target.Target, resources []string, count int,
) error {
	interrupted, stop := interruptible(ctx)
	defer stop()
	ctx, cancel := context.WithCancelCause(interrupted)
	defer cancel(nil)
	l := &listener{mcpRemote: m, quota: quota{end: cancel, left: count}}
	s, err := m.open(ctx, t, func(o *mcp.ClientOptions) {
		o.OnListChanged = func(kind string) {
			l.event(event{Event: "list_changed", Kind: kind}, kind+" changed")
		}
		o.OnResourceUpdated = func(uri string) {
			l.event(event{Event: "resource_updated", URI: uri}, "updated "+tame(uri))
		}
		o.OnLog = func(p *spec.LoggingMessageNotificationParams) {
			who := ""
			if p.Logger != "" {
				who = tame(p.Logger) + ": "
			}
			l.event(event{Event: "log", Log: p}, "log "+tame(p.Level)+" "+who+jsonText(p.Data))
		}
		format := "Listening for %s; Ctrl-C ends."
		o.OnListening = func(granted spec.SubscriptionFilter) {
			m.screen.printf(format, filterText(granted))
			format = "The stream had ended. Listening again for %s; what changed in between was not told."
		}
	})
	if err != nil {
		return err
	}
	defer s.end()
	caps := s.Server().Capabilities
	err = s.Listen(ctx, spec.SubscriptionFilter{
		ToolsListChanged:      caps.Tools != nil && caps.Tools.ListChanged,
		PromptsListChanged:    caps.Prompts != nil && caps.Prompts.ListChanged,
		ResourcesListChanged:  caps.Resources != nil && caps.Resources.ListChanged,
		ResourceSubscriptions: resources,
	})
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errEnough), interrupted.Err() != nil:
		return nil // that is how listening ends
	case cause != nil:
		return cause
	}
	return s.failure(ctx, "listen", err)
}

// filterText is what a server has agreed to tell of.
func filterText(f spec.SubscriptionFilter) string {
	var what []string
	for _, l := range []struct {
		name string
		on   bool
	}{
		{"tools", f.ToolsListChanged},
		{"resources", f.ResourcesListChanged},
		{"prompts", f.PromptsListChanged},
	} {
		if l.on {
			what = append(what, "changes of the "+l.name)
		}
	}
	for _, uri := range f.ResourceSubscriptions {
		what = append(what, tame(uri))
	}
	if len(what) == 0 {
		return "nothing but the log"
	}
	return strings.Join(what, ", ")
}
