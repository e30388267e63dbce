package mcp

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/backoff"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// What has listened this long was a success: the next back-off is short again.
const listenedWell = time.Minute

// Listen asks the server to tell of changes, which go to the callbacks of
// ClientOptions. It returns when the context has ended, with its error, or when
// the server refuses. When the stream breaks off, or the server ends it, Listen
// begins again. Changes in between were missed: OnListChanged and OnResourceUpdated
// are called for everything that the server has agreed to tell of, and OnListening
// before.
func (c *Client) Listen(ctx context.Context, filter spec.SubscriptionFilter) error {
	failures := 0
	for again := false; ; again = true {
		begun := time.Now()
		l, err := c.link(ctx)
		if err == nil {
			if again {
				c.missed(filter)
			}
			if l.rev.ListenStream {
				err = c.subscribe(ctx, l, filter, again)
			} else {
				err = c.watchLegacy(ctx, l, filter, again)
			}
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case c.ctx.Err() != nil:
			return farcall.ErrClosed
		case c.final(l, err):
			return fmt.Errorf("mcp: listen: %w", err)
		case time.Since(begun) > listenedWell:
			failures = 0
		}
		failures++
		if err := backoff.Sleep(ctx,
			backoff.Delay(failures, 250*time.Millisecond, 30*time.Second)); err != nil {
			return err
		}
	}
}

// missed drops what may have changed while the client did not listen.
func (c *Client) missed(f spec.SubscriptionFilter) {
	if f.ToolsListChanged {
		c.shelf.settle(nil)
		c.cache.drop(spec.MethodToolsList, "")
	}
	if f.PromptsListChanged {
		c.cache.drop(spec.MethodPromptsList, "")
	}
	if f.ResourcesListChanged {
		c.cache.drop(spec.MethodResourcesList, "")
		c.cache.drop(spec.MethodResourcesTemplatesList, "")
	}
	for _, uri := range f.ResourceSubscriptions {
		c.cache.drop(spec.MethodResourcesRead, uri)
	}
}

var errNoStream = errors.New(
	"the server has no stream for what belongs to no call (it refuses GET), so that it cannot " +
		"tell of changes")

// final reports whether listening again would fail in the same way.
func (c *Client) final(l *link, err error) bool {
	var refused *jsonrpc.Error
	var status *mcphttp.StatusError
	switch {
	case err == nil, errors.Is(err, mcphttp.ErrSessionLost):
		return false
	case errors.Is(err, errNoStream), errors.As(err, &refused):
		return true
	case errors.As(err, &status):
		return status.Status < http.StatusInternalServerError &&
			status.Status != http.StatusRequestTimeout && status.Status != http.StatusTooManyRequests
	}
	return c.dial == nil && (l == nil || l.http == nil)
}

// A subscription is a subscriptions/listen that waits for its acknowledgement
// (basic/patterns/subscriptions).
type subscription struct {
	want  spec.SubscriptionFilter
	again bool // changes were missed before
	once  sync.Once
	open  func() // when it is acknowledged, or has ended without
}

type subscriptionKey struct{}

// subscribe listens until the stream ends.
func (c *Client) subscribe(
	ctx context.Context, l *link, filter spec.SubscriptionFilter, again bool,
) error {
	raw, err := jsonv2.Append(nil, &spec.SubscriptionsListenRequestParams{Notifications: filter})
	if err != nil {
		return err
	}
	params, err := c.modernParams(l.rev, raw)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if l.http == nil {
		select {
		case l.opening <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	late := c.unacknowledged(cancel)
	sub := &subscription{want: filter, again: again, open: func() { late.Stop() }}
	if l.http == nil {
		sub.open = func() {
			late.Stop()
			l.pending.Store(nil)
			<-l.opening
		}
		l.pending.Store(sub)
	} else {
		// Its stream is its own: what comes there has this context.
		ctx = context.WithValue(ctx, subscriptionKey{}, sub)
	}
	defer sub.once.Do(sub.open)
	err = l.peer.Call(ctx, spec.MethodSubscriptionsListen, params, nil)
	if tooLate := (*tooLateError)(nil); errors.As(context.Cause(ctx), &tooLate) {
		return tooLate
	}
	return err
}

// unacknowledged ends a subscription that is not acknowledged in time.
func (c *Client) unacknowledged(cancel context.CancelCauseFunc) *time.Timer {
	if c.opts.Timeout < 0 {
		return time.AfterFunc(math.MaxInt64, func() {})
	}
	return time.AfterFunc(c.opts.Timeout, func() {
		cancel(
			&tooLateError{
				fmt.Sprintf("the server did not acknowledge the subscription within %v (ClientOptions.Timeout)",
					c.opts.Timeout),
			})
	})
}

// acknowledged takes the acknowledgement of the subscription that waits for one.
func (w *line) acknowledged(
	ctx context.Context, p *spec.SubscriptionsAcknowledgedNotificationParams,
) {
	sub, _ := ctx.Value(subscriptionKey{}).(*subscription)
	if sub == nil {
		sub = w.pending.Load()
	}
	if sub == nil {
		return // it has ended meanwhile
	}
	sub.once.Do(sub.open)
	w.c.granted(sub.want, p.Notifications, sub.again)
}

// granted tells what of a filter the server has agreed to, and that it may have
// changed if that was missed.
func (c *Client) granted(want, got spec.SubscriptionFilter, missed bool) {
	var missing []string
	lack := func(what string, want, got bool) {
		if want && !got {
			missing = append(missing, what)
		}
	}
	lack("the list of tools", want.ToolsListChanged, got.ToolsListChanged)
	lack("the list of prompts", want.PromptsListChanged, got.PromptsListChanged)
	lack("the list of resources", want.ResourcesListChanged, got.ResourcesListChanged)
	for _, uri := range want.ResourceSubscriptions {
		lack(uri, true, slices.Contains(got.ResourceSubscriptions, uri))
	}
	for _, id := range want.TaskIDs {
		lack("the task "+id, true, slices.Contains(got.TaskIDs, id))
	}
	if len(missing) > 0 {
		c.warn("the server does not tell of changes to %s", strings.Join(missing, ", "))
	}
	if c.opts.OnListening != nil {
		c.opts.OnListening(got)
	}
	if missed {
		c.mayHaveChanged(got)
	}
}

// mayHaveChanged tells of everything that a filter is about.
func (c *Client) mayHaveChanged(f spec.SubscriptionFilter) {
	for _, list := range []struct {
		kind string
		told bool
	}{
		{"tools", f.ToolsListChanged},
		{"prompts", f.PromptsListChanged},
		{"resources", f.ResourcesListChanged},
	} {
		if list.told {
			c.opts.listChanged(list.kind)
		}
	}
	if c.opts.OnResourceUpdated == nil {
		return
	}
	for _, uri := range f.ResourceSubscriptions {
		c.opts.OnResourceUpdated(uri)
	}
}

// watchLegacy listens in the legacy way until the link has ended: lists are announced
// of anyway, and resources are subscribed to one by one.
func (c *Client) watchLegacy(
	ctx context.Context, l *link, filter spec.SubscriptionFilter, again bool,
) error {
	c.openEvents(ctx, l)
	caps, got := l.info.Capabilities, filter
	got.ToolsListChanged = filter.ToolsListChanged && caps.Tools != nil && caps.Tools.ListChanged
	got.PromptsListChanged = filter.PromptsListChanged && caps.Prompts != nil &&
		caps.Prompts.ListChanged
	got.ResourcesListChanged = filter.ResourcesListChanged && caps.Resources != nil &&
		caps.Resources.ListChanged
	got.ResourceSubscriptions, got.TaskIDs = nil, nil
	if caps.Resources != nil && caps.Resources.Subscribe {
		for _, uri := range filter.ResourceSubscriptions {
			if err := c.watchResource(ctx, l, uri); err != nil {
				return err
			}
			defer c.unwatchResource(ctx, l, uri)
			got.ResourceSubscriptions = append(got.ResourceSubscriptions, uri)
		}
	}
	c.granted(filter, got, again)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-l.ctx.Done():
		return nil // there is another link
	case <-l.peer.Done():
		return farcall.ErrClosed
	case err := <-l.ended:
		l.ended <- err // for the others who listen
		return err
	}
}

// A watchList counts who watches which resource on a link.
type watchList struct {
	mu  sync.Mutex
	who map[string]int
}

func (w *watchList) add(uri string, n int) (now int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.who == nil {
		w.who = map[string]int{}
	}
	w.who[uri] += n
	return w.who[uri]
}

func (c *Client) watchResource(ctx context.Context, l *link, uri string) error {
	l.watch.add(uri, 1)
	// Every watcher subscribes: that does no harm, and none has to wait for
	// another one.
	err := c.watchCall(ctx, l, spec.MethodResourcesSubscribe, uri)
	if err != nil {
		l.watch.add(uri, -1)
	}
	return err
}

func (c *Client) unwatchResource(ctx context.Context, l *link, uri string) {
	if l.watch.add(uri, -1) > 0 || l.ctx.Err() != nil || l.peer.Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if err := c.watchCall(ctx, l, spec.MethodResourcesUnsubscribe, uri); err != nil &&
		l.ctx.Err() == nil {
		c.warn("the subscription to %s could not be ended: %w", uri, err)
	}
}

func (c *Client) watchCall(ctx context.Context, l *link, method, uri string) error {
	params, err := jsonv2.Append(nil, &spec.SubscribeParams{URI: uri})
	if err != nil {
		return err
	}
	q := &outgoing{method: method, params: params}
	if _, err = c.exchange(ctx, l, q); err == nil {
		return nil
	}
	if errors.Is(err, mcphttp.ErrSessionLost) && ctx.Err() == nil {
		c.repaired(ctx, l, method, err)
	}
	return err
}

// openEvents opens the stream on which a legacy server sends over HTTP what
// belongs to no call, once on each link. It waits until the server has answered,
// for the time of a probe at most: there are servers that drop what they would
// send on a stream that is not there yet.
func (c *Client) openEvents(ctx context.Context, l *link) {
	if l.http == nil {
		return
	}
	l.events.Do(func() {
		c.spawn(func() {
			err := l.http.Listen(l.ctx, func() { close(l.opened) }, func(frame []byte) error {
				l.handle(l.ctx, frame)
				return nil
			})
			switch {
			case l.ctx.Err() != nil:
				return
			case err == nil:
				err = errNoStream
			case errors.Is(err, mcphttp.ErrSessionLost):
				c.repaired(l.ctx, l, "", err)
			default:
				c.warn("the stream for what belongs to no call has ended: %w", err)
			}
			l.ended <- err
		})
	})
	late := time.NewTimer(c.opts.ProbeTimeout)
	defer late.Stop()
	select {
	case <-l.opened:
	case <-late.C:
	case <-l.ctx.Done():
	case <-ctx.Done():
	}
}
