package policy

import (
	"slices"
	"strings"
)

// Patterns are compared exactly, as the automata they are: whether what one matches is a part of
// what others match together, and whether two match a call in common. It takes time that no
// pattern of a person's needs, so that there is a budget; when it is used up, nothing is claimed.

// budget counts down the steps of comparisons.
type budget struct{ left int }

func (b *budget) pay(n int) { b.left -= n }

func (b *budget) step() bool {
	b.left--
	return b.left > 0
}

// others are tried for the character that no pattern names.
const others = "xyzabcdefghijklmnopqrstuvw0123456789_-XYZABCDEFGHIJKLMNOPQRSTUVW"

// letters are the characters that the patterns name, and one that none does.
func letters(patterns ...[]rune) []rune {
	seen := map[rune]bool{'*': true, '?': true}
	var list []rune
	for _, p := range patterns {
		for _, r := range p {
			if !seen[r] {
				seen[r] = true
				list = append(list, r)
			}
		}
	}
	for _, r := range others {
		if !seen[r] {
			return append(list, r)
		}
	}
	for r := rune(0x100); ; r++ {
		if !seen[r] {
			return append(list, r)
		}
	}
}

// takes reports whether a pattern's character takes r.
func takes(p, r rune) bool { return p == '*' || p == '?' || p == r }

// apart reports, quickly, that two patterns have no call in common: what is before the first
// wildcard differs.
func apart(a, b string) bool {
	i, j := strings.IndexAny(a, "*?"), strings.IndexAny(b, "*?")
	if i < 0 && j < 0 {
		return a != b
	}
	if i < 0 {
		i = len(a)
	}
	if j < 0 {
		j = len(b)
	}
	n := min(i, j)
	return a[:n] != b[:n]
}

// step is a place in each of two patterns, and how it was come to: from another step, with a
// character or (0) without.
type step struct {
	from, i, j int
	r          rune
}

// overlap returns a short call that both patterns match.
func overlap(a, b string, left *budget) (call string, ok bool) {
	if !left.step() || apart(a, b) {
		return "", false
	}
	x, y := []rune(a), []rune(b)
	free := letters(x, y)
	queue := []step{{from: -1}}
	seen := map[[2]int]bool{{}: true}
	push := func(s step) {
		if at := [2]int{s.i, s.j}; !seen[at] {
			seen[at] = true
			queue = append(queue, s)
		}
	}
	for n := 0; n < len(queue) && left.step(); n++ {
		i, j := queue[n].i, queue[n].j
		if i == len(x) && j == len(y) {
			return spell(queue, n), true
		}
		if i < len(x) && x[i] == '*' {
			push(step{n, i + 1, j, 0})
		}
		if j < len(y) && y[j] == '*' {
			push(step{n, i, j + 1, 0})
		}
		if i == len(x) || j == len(y) {
			continue
		}
		if r := common(x[i], y[j], free[len(free)-1]); takes(x[i], r) && takes(y[j], r) {
			push(step{n, after(x, i), after(y, j), r})
		}
	}
	return "", false
}

// common is the character that two patterns may both take.
func common(p, q, free rune) rune {
	switch {
	case p != '*' && p != '?':
		return p
	case q != '*' && q != '?':
		return q
	}
	return free
}

// spell is the characters on the way to a step.
func spell(queue []step, n int) string {
	var word []rune
	for ; n >= 0; n = queue[n].from {
		if queue[n].r != 0 {
			word = append(word, queue[n].r)
		}
	}
	slices.Reverse(word)
	return string(word)
}

// after is where a pattern is when its character at i has taken one.
func after(p []rune, i int) int {
	if p[i] == '*' {
		return i
	}
	return i + 1
}

// covered reports whether every call that pattern matches is matched by one of those in by.
func covered(pattern string, by []string, left *budget) bool {
	var near [][]rune
	left.pay(1 + len(by))
	for _, p := range by {
		if p == pattern || p == "*" {
			return true
		}
		if !apart(p, pattern) {
			near = append(near, []rune(p))
		}
	}
	if len(near) == 0 {
		return false
	}
	left.pay(8 * len(near))
	q := []rune(pattern)
	abc := letters(near...)
	c := &covering{by: near}
	type state struct {
		at  int
		set string // where those in by may be, as bits
	}
	start := state{0, c.start()}
	queue := []state{start}
	seen := map[state]bool{start: true}
	push := func(s state) {
		if !seen[s] {
			seen[s] = true
			queue = append(queue, s)
		}
	}
	for len(queue) > 0 {
		s := queue[0]
		queue = queue[1:]
		if !left.step() || s.at == len(q) && !c.accepts(s.set) {
			return false
		}
		if s.at == len(q) {
			continue
		}
		if q[s.at] == '*' {
			push(state{s.at + 1, s.set})
		}
		tries := abc
		if q[s.at] != '*' && q[s.at] != '?' {
			tries = q[s.at : s.at+1]
		}
		for _, r := range tries {
			left.pay(len(s.set))
			push(state{after(q, s.at), c.next(s.set, r)})
		}
	}
	return true
}

// covering runs a number of patterns at once. A set has a bit for each place in each of them.
type covering struct{ by [][]rune }

func (c *covering) size() (n int) {
	for _, p := range c.by {
		n += len(p) + 1
	}
	return n/8 + 1
}

func (c *covering) start() string {
	set := make([]byte, c.size())
	base := 0
	for _, p := range c.by {
		c.mark(set, base, p, 0)
		base += len(p) + 1
	}
	return string(set)
}

// mark adds a place, and those that stars reach from it.
func (c *covering) mark(set []byte, base int, p []rune, i int) {
	for {
		set[(base+i)/8] |= 1 << ((base + i) % 8)
		if i == len(p) || p[i] != '*' {
			return
		}
		i++
	}
}

func (c *covering) next(set string, r rune) string {
	out := make([]byte, len(set))
	base := 0
	for _, p := range c.by {
		for i := range p {
			if set[(base+i)/8]&(1<<((base+i)%8)) != 0 && takes(p[i], r) {
				c.mark(out, base, p, after(p, i))
			}
		}
		base += len(p) + 1
	}
	return string(out)
}

func (c *covering) accepts(set string) bool {
	base := 0
	for _, p := range c.by {
		end := base + len(p)
		if set[end/8]&(1<<(end%8)) != 0 {
			return true
		}
		base = end + 1
	}
	return false
}
