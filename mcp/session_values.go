package mcp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/store"
)

const (
	// maxSessionValues bounds the bytes of the values of one session, with their keys.
	maxSessionValues = 64 << 10
	// valuesPrefix begins the id of the record with the values of a session, which no task has.
	valuesPrefix = "session-values "
	// levelKey is the key of the level of the log, beside those of SetValue.
	levelKey = "\x00log level"
	// levelAge is how old the level may be that a session logs from: messages are many, and a level
	// is seldom set.
	levelAge = time.Second
	// maxValuesAge bounds how long the values of sessions without an end are stored, from the last
	// change on.
	maxValuesAge = 10 * 365 * 24 * time.Hour
	// swaps is how often a change is made again because another one was first.
	swaps = 100
)

var errManyValues = fmt.Errorf("mcp: the values of one session have %d bytes at most, with their keys", maxSessionValues)

// SetValue keeps a value under a key for the session, as JSON. A nil value removes what is there.
// The values of a session have 64 KB at most, with their keys.
//
// They last as long as the session does in this process. The id of a session that is sealed for all
// replicas does not have them: with ServerOptions.Sessions they are in that store, and each replica
// that shares it sees them at once; different keys may be set at several replicas at a time, and of
// one key the last value stays. Without it, another replica does not see them, and neither does
// this one after it was idle for mcphttp.Options.IdleTimeout. So they suit what can be made again.
//
// It fails when the session has ended, when there is no more room, and when the store does.
func (s *Session) SetValue(key string, value any) error {
	var raw jsonrpc.Raw
	if value != nil {
		var err error
		if raw, err = jsonv2.Append(nil, value); err != nil {
			return fmt.Errorf("mcp: the value %q of a session cannot be marshalled: %w", key, err)
		}
	}
	x := s.x
	if stored := x.storedValues(); stored != nil {
		if x.hasEnded() {
			return errSessionEnded
		}
		return stored.set(key, raw)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return errSessionEnded
	}
	return setValue(&x.values, key, raw)
}

// Value stores the value of a key in what v points to, and reports whether there is one.
func (s *Session) Value(key string, v any) (ok bool, err error) {
	var raw jsonrpc.Raw
	if stored := s.x.storedValues(); stored != nil {
		values, _, err := stored.get()
		if err != nil {
			return false, err
		}
		raw, ok = values[key]
	} else {
		s.x.mu.Lock()
		raw, ok = s.x.values[key]
		s.x.mu.Unlock()
	}
	if !ok {
		return false, nil
	}
	return true, jsonv2.Unmarshal(raw, v)
}

// setValue sets a value, or removes it where it is nil.
func setValue(values *map[string]jsonrpc.Raw, key string, raw jsonrpc.Raw) error {
	size := len(key) + len(raw)
	for k, v := range *values {
		if k != key {
			size += len(k) + len(v)
		}
	}
	switch {
	case raw == nil:
		delete(*values, key)
		return nil
	case size > maxSessionValues:
		return errManyValues
	case *values == nil:
		*values = map[string]jsonrpc.Raw{}
	}
	(*values)[key] = raw
	return nil
}

// storedValues are the values of a session that outlives the process: one record, an object of
// JSON.
type storedValues struct {
	records          store.Records
	owner, group, id string
	until            time.Time
}

// storedValues returns where the values of the session are stored. Nil: in memory.
func (x *session) storedValues() *storedValues {
	sealed, ok := x.client.(interface {
		Sealed() (id string, until time.Time)
	})
	if !ok || x.srv.opts.Sessions == nil {
		return nil
	}
	id, until := sealed.Sealed()
	if id == "" {
		return nil
	}
	if most := time.Now().Add(maxValuesAge); until.After(most) {
		until = most
	}
	v := &storedValues{records: x.srv.opts.Sessions, owner: x.owner.Text(), id: valuesPrefix + id, until: until}
	if g := x.owner.Group(); g != x.owner {
		v.group = g.Text()
	}
	return v
}

// get returns the values and the version of their record, which are both none where there is no
// record.
func (v *storedValues) get() (values map[string]jsonrpc.Raw, version uint64, err error) {
	ctx, cancel := storing()
	defer cancel()
	r, err := v.records.Get(ctx, v.owner, v.id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, 0, nil
	case err == nil:
		if err = jsonv2.Unmarshal(r.Value, &values); err == nil {
			return maps.Clone(values), r.Version, nil
		}
	}
	return nil, 0, fmt.Errorf("mcp: the values of a session cannot be read: %w", err)
}

// set sets a value, whatever other replicas set at the same time.
func (v *storedValues) set(key string, raw jsonrpc.Raw) error {
	for range swaps {
		values, version, err := v.get()
		if err == nil {
			err = setValue(&values, key, raw)
		}
		if err != nil {
			return err
		}
		switch err = v.put(values, version); {
		case errors.Is(err, store.ErrConflict):
		case err != nil:
			return fmt.Errorf("mcp: the values of a session cannot be stored: %w", err)
		default:
			return nil
		}
	}
	return fmt.Errorf("mcp: the values of a session cannot be stored: %d others were stored meanwhile: %w", swaps, store.ErrConflict)
}

func (v *storedValues) put(values map[string]jsonrpc.Raw, version uint64) error {
	ctx, cancel := storing()
	defer cancel()
	if len(values) == 0 {
		values = map[string]jsonrpc.Raw{} // the record stays, so that its version goes on
	}
	text, err := jsonv2.Append(nil, values)
	if err == nil {
		_, err = v.records.Put(ctx, &store.Record{Owner: v.owner, Group: v.group, ID: v.id, Version: version, Expires: v.until, Value: text})
	}
	return err
}

// Discard removes what is stored of a session that its client has ended: see mcphttp.Handler.
func (x *session) Discard(ctx context.Context) {
	x.srv.discardTasks(x.owner)
	v := x.storedValues()
	if v == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	if err := v.records.Delete(ctx, v.owner, v.id); err != nil {
		x.srv.logger().Error("mcp: the values of a session stay in the store until it expires", "error", err)
	}
}

// setLevel sets the level of the log, at all replicas that share the values of sessions.
func (x *session) setLevel(level string) error {
	if v := x.storedValues(); v != nil {
		raw, err := jsonv2.Append(nil, level)
		if err == nil {
			err = v.set(levelKey, raw)
		}
		if err != nil {
			return err
		}
	}
	x.log.Store(&logLevel{level, time.Now()})
	return nil
}

// readLevel reads the level that another replica may have set. When the store does not answer, the
// level stays.
func (x *session) readLevel() {
	if x.srv.opts.Sessions == nil {
		return
	}
	last, next := x.log.Load(), logLevel{defaultLevel, time.Now()}
	if last != nil {
		if next.level = last.level; next.read.Sub(last.read) < levelAge {
			return
		}
	}
	v := x.storedValues()
	if v == nil {
		return
	}
	values, _, err := v.get()
	if err != nil {
		x.srv.logger().Warn("mcp: the level of a client's log may be older than that of another replica", "error", err)
	}
	var level string
	if jsonv2.Unmarshal(values[levelKey], &level) == nil && spec.LogSeverity(level) >= 0 {
		next.level = level
	}
	x.log.CompareAndSwap(last, &next) // setLevel may have been called meanwhile
}
