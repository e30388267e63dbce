package policy

import "testing"

// TestLookedAt says which members of the arguments policies may look at: the others are not
// converted for a decision.
func TestLookedAt(t *testing.T) {
	for condition, want := range map[string]struct{ a, b bool }{
		`context has arguments`:                                  {false, false},
		`context.arguments has a`:                                {true, false},
		`context.arguments.a == 1`:                               {true, false},
		`context["arguments"]["a"] == 1`:                         {true, false},
		`context.arguments.a.b == 1`:                             {true, false},
		`context.arguments has a.b`:                              {true, false},
		`context.arguments has a && resource.b == "x"`:           {true, false},
		`context.arguments == {"a": 1}`:                          {true, true},
		`context.arguments.a == context.arguments`:               {true, true},
		`[context.arguments].contains({"a": 1})`:                 {true, true},
		`{"x": context.arguments}.x.a == 1`:                      {true, true},
		`(if 1 == 1 then context.arguments else {"a": 1}) has a`: {true, true},
		`context == {"arguments": {"a": 1}}`:                     {true, true},
		`(if 1 == 1 then context else context).arguments has a`:  {true, true},
	} {
		s := compile(t, nil, `permit (principal, action, resource) when { `+condition+` };`)
		if a, b := s.use.inArguments([]byte("a")), s.use.inArguments([]byte("b")); a != want.a ||
			b != want.b {
			t.Errorf("%s: %v for a, %v for b, want %v", condition, a, b, want)
		}
	}
	// Two policies: each looks at its own.
	s := compile(t, nil, `permit (principal, action, resource);
forbid (principal, action, resource) when { context.arguments has a };
forbid (principal, action, resource) when { context.arguments has b && context.arguments.b.c == [1, {"d": 2}] };`)
	for arguments, allowed := range map[string]bool{
		`{"x":[[[]]],"y":{"a":1}}`:         true,
		`{"x":1,"a":null}`:                 false,
		`{"x":1,"\u0061":null}`:            false,
		`{"x":1,"b":{"c":[{"d":2},1]}}`:    false,
		`{"x":1,"b":{"c":[{"d":3},1]}}`:    true,
		`{"x":1,"y":2,"x":3,"b":{"c":[]}}`: false, // given twice
		`{"1":1,"2":1,"3":1,"4":1,"5":1,"6":1,"7":1,"8":1,"9":1,"10":1,"9":1}`:  false,
		`{"1":1,"2":1,"3":1,"4":1,"5":1,"6":1,"7":1,"8":1,"9":1,"10":1,"10":1}`: false,
		`{"1":1,"2":1,"3":1,"4":1,"5":1,"6":1,"7":1,"8":1,"9":1,"10":1,"11":1}`: true,
	} {
		if d := s.Decide(&Query{Method: "m", Arguments: []byte(arguments)}); d.Allowed != allowed {
			t.Errorf("%s: %+v", arguments, d)
		}
	}
}

// size is the number of entries that are remembered.
func (c *cache[V]) size() (n int) {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.RLock()
		n += len(s.entries)
		s.mu.RUnlock()
	}
	return n
}
