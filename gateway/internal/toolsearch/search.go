package toolsearch

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// A Query says what is searched for.
type Query struct {
	Text     string // words, or names of tools with commas between them
	Server   string // "": of all
	ReadOnly bool   // only tools that are marked as read-only
	Limit    int    // of the tools that are returned; 6 by default, 20 at most
}

// A Result has the tools that fit, the best first.
type Result struct {
	Tools []int // see Index.Tool
	More  int   // tools that fit, too, beyond the limit
	Exact int   // how many of Tools, from the first on, were asked for by their names
	Weak  bool  // the best one has few of the words
}

// The constants of the ranking. They were chosen on label sets that are not held out, see
// TestEvaluate: weakBelow so that about nine in ten queries for something else are below it.
const (
	saturation    = 1.2 // k1
	synonymWeight = .33
	synonymCover  = .7 // of a word that only a synonym stands for
	coverBonus    = .6
	nameBonus     = .33
	weakName      = .5 // what the name counts for in a fit
	weakBelow     = 1.1
	defaultLimit  = 6
	// MaxLimit is how many tools a Result has at most.
	MaxLimit = 20
)

// Search returns the tools that fit a query, of those that allowed reports true for; nil allows
// all. What is not allowed has no effect on the result. The allowed function is called once for
// each tool.
func (x *Index) Search(q *Query, allowed func(tool int) bool) Result {
	s := search{x: x, limit: min(cmp.Or(max(q.Limit, 0), defaultLimit), MaxLimit)}
	s.see(allowed)
	text := q.Text
	if len(text) > maxQuery {
		text = strings.ToValidUTF8(text[:maxQuery], "")
	}
	fits := func(i int32) bool {
		t := &x.tools[i]
		return s.seen[i] && (q.Server == "" || t.Server == q.Server) && (!q.ReadOnly || t.readOnly)
	}
	r, all := s.named(text, fits)
	if all {
		return r
	}
	s.score(text)
	folded, hits := fold(text), 0
	for i, score := range s.scores {
		if score > 0 && fits(int32(i)) && !slices.Contains(r.Tools, i) {
			hits++
			s.place(s.rank(int32(i), folded))
		}
	}
	r.Weak = len(r.Tools) == 0 && (hits == 0 || s.hits[0].fit < weakBelow)
	for _, h := range s.hits[:min(len(s.hits), s.limit-r.Exact)] {
		r.Tools = append(r.Tools, h.tool)
	}
	r.More = max(hits+r.Exact-s.limit, 0)
	return r
}

// place keeps a hit if it is one of the best, as many as may be returned.
func (s *search) place(h hit) {
	at := len(s.hits)
	for at > 0 && s.hits[at-1].score < h.score { // equal ones stay in the order of the tools
		at--
	}
	s.hits = slices.Insert(s.hits, at, h)
	s.hits = s.hits[:min(len(s.hits), s.limit)]
}

type hit struct {
	tool       int
	score, fit float32 // fit is not more for a longer query
}

// A search is under way.
type search struct {
	x       *Index
	limit   int
	seen    []bool
	tools   float64 // that are seen
	average [fields]float32

	scores, cover []float32
	whole         float32   // what cover would be for all the words
	idfs          []float32 // by term; below 0: it was not looked at
	asked         []int32   // the terms of the query
	hits          []hit     // the best, in order

	part, covered []float32 // of one word of the query
	touched       []int32   // the tools in them
}

// see notes which tools count, and how long their fields are.
func (s *search) see(allowed func(tool int) bool) {
	s.seen = make([]bool, len(s.x.tools))
	for i := range s.x.tools {
		if allowed != nil && !allowed(i) {
			continue
		}
		s.seen[i] = true
		s.tools++
		for f, n := range s.x.tools[i].lengths {
			s.average[f] += float32(n)
		}
	}
	for f := range s.average {
		s.average[f] = max(s.average[f]/float32(max(s.tools, 1)), 1)
	}
}

// named finds the tools that are asked for by their names. It reports whether that is all that is
// asked for.
func (s *search) named(text string, fits func(int32) bool) (r Result, all bool) {
	parts := strings.Split(text, ",")
	all = true
	for _, part := range parts {
		found := false
		if name := fold(part); name != "" {
			for _, i := range s.x.names[name] {
				if fits(i) && !slices.Contains(r.Tools, int(i)) && len(r.Tools) < s.limit {
					r.Tools = append(r.Tools, int(i))
					found = true
				}
			}
		}
		all = all && found
	}
	r.Exact = len(r.Tools)
	return r, all && (len(parts) > 1 || strings.ContainsAny(text, "_-./") ||
		!strings.Contains(strings.TrimSpace(text), " ")) && r.Exact > 0
}

// score counts the words of a query.
func (s *search) score(text string) {
	n := len(s.x.tools)
	room := make([]float32, 4*n+len(s.x.postings))
	s.scores, s.cover, s.part, s.covered, s.idfs = room[:n], room[n:2*n], room[2*n:3*n], room[3*n:4*n],
		room[4*n:]
	for id := range s.idfs {
		s.idfs[id] = -1
	}
	seen := map[string]bool{}
	words(text, func(w word) bool {
		parts := w.parts
		if len(parts) == 0 {
			parts = []string{w.whole}
		} else if id, ok := s.x.ids[w.whole]; ok && s.idf(id) > 0 {
			parts = append(parts, w.whole) // it counts where there is one
		}
		for _, term := range parts {
			if !seen[term] && len(seen) < maxTerms {
				seen[term] = true
				s.term(term)
			}
		}
		return len(seen) < maxTerms
	})
}

// term counts a word of the query, or what stands for it.
func (s *search) term(term string) {
	best := float32(0)
	s.touched = s.touched[:0]
	count := func(of string, weight, cover float32) {
		id, ok := s.x.ids[of]
		if !ok {
			return
		}
		idf := s.idf(id)
		if idf == 0 {
			return
		}
		if weight == 1 {
			best = idf
		}
		s.asked = append(s.asked, id)
		for i := range s.x.postings[id] {
			p := &s.x.postings[id][i]
			if !s.seen[p.tool] {
				continue
			}
			tf := s.frequency(p)
			if s.part[p.tool] == 0 {
				s.touched = append(s.touched, p.tool)
			}
			s.part[p.tool] = max(s.part[p.tool], weight*idf*tf*(saturation+1)/(saturation+tf))
			s.covered[p.tool] = max(s.covered[p.tool], cover)
		}
	}
	count(term, 1, 1)
	for _, other := range synonyms[term] {
		count(other, synonymWeight, synonymCover)
	}
	if best == 0 {
		best = float32(math.Log(1 + (s.tools+.5)/.5)) // no tool has it
	}
	s.whole += best
	for _, i := range s.touched {
		s.scores[i] += s.part[i]
		s.cover[i] += best * s.covered[i]
		s.part[i], s.covered[i] = 0, 0
	}
}

// frequency is how often a term is in a tool, by the weights and the lengths of the fields.
func (s *search) frequency(p *posting) (tf float32) {
	for f, n := range p.counts {
		if n > 0 {
			l := layout[f]
			tf += l.weight * float32(n) /
				(1 - l.length + l.length*float32(s.x.tools[p.tool].lengths[f])/s.average[f])
		}
	}
	return tf
}

// idf is how much a term says: the fewer of the tools that count have it, the more; 0 when none
// has.
func (s *search) idf(id int32) float32 {
	if idf := s.idfs[id]; idf >= 0 {
		return idf
	}
	n := 0
	for i := range s.x.postings[id] {
		if s.seen[s.x.postings[id][i].tool] {
			n++
		}
	}
	idf := float32(0)
	if of := float64(n); n > 0 {
		idf = float32(math.Log(1 + (s.tools-of+.5)/(of+.5)))
	}
	s.idfs[id] = idf
	return idf
}

// rank scores a tool: more words of the query, and more words of its name, count more than
// the sum. One with a name begins with the query comes before others.
func (s *search) rank(i int32, folded string) hit {
	t := &s.x.tools[i]
	var in, all float32
	for _, id := range t.own {
		idf := s.idf(id)
		all += idf
		if slices.Contains(s.asked, id) {
			in += idf
		}
	}
	whole := max(s.whole, 1e-6)
	cover, name := s.cover[i]/whole, in/max(all, 1e-6)
	h := hit{
		int(i), s.scores[i] * (1 + coverBonus*cover + nameBonus*name),
		cover + weakName*name + s.scores[i]/whole/(saturation+1),
	}
	if len(folded) > 2 && strings.HasPrefix(t.folded, folded) {
		h.score += 1000
	}
	return h
}
