package observe

import "context"

// Join returns an observer that calls all of them, in their order; End and Close in the opposite
// one, so that they nest. Nil ones are left out: the result of none is nil.
func Join(all ...*Observer) *Observer {
	var joined *Observer
	for _, o := range all {
		switch {
		case o == nil:
		case joined == nil:
			joined = o
		default:
			joined = join(joined, o)
		}
	}
	return joined
}

func join(a, b *Observer) *Observer {
	return &Observer{
		Start:    chain(a.Start, b.Start),
		Sent:     both2(a.Sent, b.Sent),
		End:      both2(b.End, a.End),
		Refuse:   both2(a.Refuse, b.Refuse),
		Frame:    both(a.Frame, b.Frame),
		Bad:      both2(a.Bad, b.Bad),
		Open:     both(a.Open, b.Open),
		Close:    both(b.Close, a.Close),
		Decide:   both(a.Decide, b.Decide),
		Messages: a.Messages || b.Messages,
		Traces:   a.Traces || b.Traces,
	}
}

// Tag returns an observer that calls set with each call before o has it in Start or Refuse: for a
// layer that knows something of all calls of its connections, such as their protocol. The Tag of
// nil is nil.
func (o *Observer) Tag(set func(*Call)) *Observer {
	if o == nil {
		return nil
	}
	t := *o
	t.Start = func(ctx context.Context, c *Call) context.Context {
		set(c)
		if o.Start != nil {
			return o.Start(ctx, c)
		}
		return ctx
	}
	if o.Refuse != nil {
		t.Refuse = func(ctx context.Context, c *Call) {
			set(c)
			o.Refuse(ctx, c)
		}
	}
	return &t
}

func chain(
	a, b func(context.Context, *Call) context.Context,
) func(context.Context, *Call) context.Context {
	if a == nil || b == nil {
		return either(a, b, a == nil)
	}
	return func(ctx context.Context, c *Call) context.Context { return b(a(ctx, c), c) }
}

func both[T any](a, b func(T)) func(T) {
	if a == nil || b == nil {
		return either(a, b, a == nil)
	}
	return func(v T) { a(v); b(v) }
}

func both2[T, U any](a, b func(T, U)) func(T, U) {
	if a == nil || b == nil {
		return either(a, b, a == nil)
	}
	return func(v T, w U) { a(v, w); b(v, w) }
}

// either returns b if second, else a.
func either[F any](a, b F, second bool) F {
	if second {
		return b
	}
	return a
}
