package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/farcall-dev/farcall/store"
)

// claim is a Claim of a key, or a Release of it by a client that has it.
type claim struct {
	key     string
	release bool
}

func (c claim) String() string { return fmt.Sprintf("claim %s release=%v", c.key, c.release) }

func onceModel() porcupine.Model {
	key := func(c claim) string { return c.key }
	return model(false, key, func(claimed bool, in claim, out outcome) []bool {
		switch {
		case in.release && out.unknown:
			return []bool{claimed, false}
		case in.release:
			return []bool{false}
		case out.unknown:
			return []bool{claimed, true}
		case out.ok == claimed:
			return nil
		}
		return []bool{true}
	})
}

func onceClient(c *client) {
	for range c.suite.Steps {
		key := fmt.Sprintf("%s-%d", c.round, c.random.IntN(4))
		got := c.do(claim{key: key}, func(ctx context.Context) outcome {
			first, err := c.Claim(ctx, key, time.Now().Add(time.Hour))
			if err != nil {
				return c.failed(err)
			}
			return outcome{ok: first}
		})
		if got.ok && c.random.IntN(3) == 0 {
			c.do(claim{key: key, release: true}, func(ctx context.Context) outcome {
				if err := c.Release(ctx, key); err != nil {
					return c.failed(err)
				}
				return outcome{ok: true}
			})
		}
	}
}

// count is a Take, or a Give.
type count struct {
	key      string
	n, limit int64
	give     bool
}

func (c count) String() string {
	return fmt.Sprintf("count %s %d of %d give=%v", c.key, c.n, c.limit, c.give)
}

func counterModel() porcupine.Model {
	key := func(c count) string { return c.key }
	return model(int64(0), key, func(sum int64, in count, out outcome) []int64 {
		next := sum + max(min(in.n, in.limit-sum), 0)
		if in.give {
			next = max(sum-in.n, 0)
		}
		switch {
		case out.unknown:
			return []int64{sum, next}
		case !in.give && int64(out.n) != next-sum:
			return nil
		}
		return []int64{next}
	})
}

func counterClient(c *client) {
	key := fmt.Sprintf("%s-%d", c.round, c.id%2)
	for range c.suite.Steps {
		n := 1 + c.random.Int64N(9)
		got := c.do(count{key: key, n: n, limit: 60}, func(ctx context.Context) outcome {
			granted, err := c.Take(ctx, key, n, 60, time.Now().Add(time.Hour))
			if err != nil {
				return c.failed(err)
			}
			return outcome{ok: true, n: uint64(granted)}
		})
		if got.n > 0 && c.random.IntN(4) == 0 {
			c.do(count{key: key, n: int64(got.n), give: true}, func(ctx context.Context) outcome {
				if err := c.Give(ctx, key, int64(got.n)); err != nil {
					return c.failed(err)
				}
				return outcome{ok: true}
			})
		}
	}
}

// access is a Put, a Get or a Delete of a record.
type access struct {
	what    string
	id      string
	version uint64
	value   string
}

func (a access) String() string {
	return fmt.Sprintf("%s %s version=%d value=%s", a.what, a.id, a.version, a.value)
}

// kept is a record; version 0: there is none.
type kept struct {
	version uint64
	value   string
}

func recordsModel() porcupine.Model {
	id := func(a access) string { return a.id }
	return model(kept{}, id, func(old kept, in access, out outcome) []kept {
		next := old
		switch in.what {
		case "put":
			if old.version == in.version {
				next = kept{old.version + 1, in.value}
			}
			if !out.unknown && out.ok != (next != old) {
				return nil
			}
		case "delete":
			next = kept{}
		case "get":
			if !out.unknown && (out.n != old.version || out.value != old.value) {
				return nil
			}
		}
		if out.unknown {
			return []kept{old, next}
		}
		return []kept{next}
	})
}

func recordsClient(c *client) {
	owner := "owner of " + c.round
	for step := range c.suite.Steps {
		id := fmt.Sprintf("%s-%d", c.round, c.random.IntN(3))
		seen := c.do(access{what: "get", id: id}, func(ctx context.Context) outcome {
			r, err := c.Get(ctx, owner, id)
			switch {
			case errors.Is(err, store.ErrNotFound):
				return outcome{}
			case err != nil:
				return c.failed(err)
			}
			return outcome{ok: true, n: r.Version, value: string(r.Value)}
		})
		if c.random.IntN(8) == 0 {
			c.do(access{what: "delete", id: id}, func(ctx context.Context) outcome {
				if err := c.Delete(ctx, owner, id); err != nil {
					return c.failed(err)
				}
				return outcome{ok: true}
			})
			continue
		}
		value := fmt.Sprintf("%d.%d", c.id, step)
		put := access{what: "put", id: id, version: seen.n, value: value}
		c.do(put, func(ctx context.Context) outcome {
			v, err := c.Put(ctx, &store.Record{
				Owner: owner, ID: id, Version: seen.n, Value: []byte(value),
				Expires: time.Now().Add(time.Hour),
			})
			switch {
			case errors.Is(err, store.ErrConflict):
				return outcome{}
			case err != nil:
				return c.failed(err)
			case v != seen.n+1:
				c.t.Errorf("Put over version %d returned version %d", seen.n, v)
			}
			return outcome{ok: true}
		})
	}
}

// work is a Push, a Pull that returned an item, or a Done.
type work struct{ what, item string }

// The life of an item in the model.
const (
	absent = iota
	present
	done
)

func queueModel() porcupine.Model {
	item := func(w work) string { return w.item }
	return model(absent, item, func(state int, in work, out outcome) []int {
		switch {
		case in.what == "push" && out.unknown && state == absent:
			return []int{absent, present}
		case in.what == "push" && state == absent:
			return []int{present}
		case in.what == "pull" && state == present:
			return []int{present}
		case in.what == "done" && out.unknown:
			return []int{state, done}
		case in.what == "done" && state != absent:
			return []int{done}
		}
		return nil
	})
}

func queueClient(c *client) {
	name := "work of " + c.round
	for step := range c.suite.Steps {
		if c.id%2 == 0 {
			item := fmt.Sprintf("%s/%d.%d", c.round, c.id, step)
			c.do(work{"push", item}, func(ctx context.Context) outcome {
				if err := c.Push(ctx, name, []byte(item)); err != nil {
					return c.failed(err)
				}
				return outcome{ok: true}
			})
			continue
		}
		c.pull(name)
	}
}

// pull takes one item, as work that is done, returned, or dropped.
func (c *client) pull(name string) (got bool) {
	ctx, cancel := context.WithTimeout(c.t.Context(), 4*c.suite.Lease)
	defer cancel()
	call := time.Since(c.began).Nanoseconds()
	item, err := c.Pull(ctx, name)
	end := time.Since(c.began).Nanoseconds()
	if err != nil {
		if ctx.Err() == nil {
			c.failed(err)
		}
		return false
	}
	text := string(item.Data())
	if !strings.HasPrefix(text, c.round) {
		c.t.Errorf("Pull returned %q, which was not pushed", text)
		return false
	}
	c.mu.Lock()
	c.operations = append(c.operations, porcupine.Operation{
		ClientId: c.id, Input: work{"pull", text}, Call: call, Output: outcome{ok: true}, Return: end,
	})
	c.mu.Unlock()
	if c.id < clients {
		switch c.random.IntN(6) {
		case 0: // the worker dies
			return true
		case 1:
			if err := item.Return(c.t.Context()); err != nil {
				c.failed(err)
			}
			return true
		}
	}
	c.do(work{"done", text}, func(ctx context.Context) outcome {
		if err := item.Done(ctx); err != nil {
			return c.failed(err)
		}
		return outcome{ok: true}
	})
	return true
}

// queueEnd takes what is left: all that was pushed must have been done then.
func queueEnd(c *client) {
	name := "work of " + c.round
	left := func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		open := map[string]bool{}
		for _, in := range c.known("push") {
			open[in.item] = true
		}
		for _, in := range c.known("done") {
			delete(open, in.item)
		}
		return len(open)
	}
	for empty := 0; left() > 0 && empty < 5; {
		if !c.pull(name) {
			empty++
		}
	}
	// After a Done with an unknown outcome its item may be gone.
	lost := left() - c.unknown
	if lost > 0 {
		c.t.Errorf("%d items were pushed and never handed out again until they were done", lost)
	}
}

// known returns the work of a kind with a known outcome. The lock of the history must be held.
func (c *client) known(what string) (all []work) {
	for _, o := range c.operations {
		in, is := o.Input.(work)
		if out, known := o.Output.(outcome); is && known && in.what == what && !out.unknown {
			all = append(all, in)
		}
	}
	return all
}
