package gateway

import (
	"fmt"
	"strconv"

	"github.com/farcall-dev/farcall/gateway/internal/toolsearch"
)

// search reads how tools are searched: true, false, a mode, or a map.
func (r *reader) search(dst **Search) take {
	return func(n *node, path string) {
		if n.kind == scalarNode {
			text, ok := r.value(n, path)
			switch {
			case !ok || text == "false":
			case text == "true":
				*dst = &Search{}
			default:
				*dst = &Search{Mode: text}
			}
			return
		}
		s := &Search{}
		*dst = s
		r.fields(n, path, map[string]take{
			"mode": r.text(&s.Mode), "always": r.choice(&s.Always), "limit": r.count(&s.Limit),
			"split": r.flag(&s.Split),
		})
	}
}

// search checks how the tools of an address are searched.
func (c *checker) search(at string, s *Search, namespace string, upstreams []string) {
	if s == nil {
		return
	}
	path := join(at, "search")
	mode := path
	if s.Mode != "" && c.said != nil && c.said(path+".mode") {
		mode = path + ".mode"
	}
	c.choice(mode, "mode of search", s.Mode, searchAlways, searchAuto)
	for i, p := range s.Always {
		c.chosen(path+".always["+strconv.Itoa(i)+"]", p, upstreams)
	}
	if len(s.Always) > maxShown {
		c.problem(path+".always",
			fmt.Sprintf("it has %d patterns; %d tools are listed at most", len(s.Always), maxShown),
			"remove some, or remove search")
	}
	if s.Limit < 0 || s.Limit > toolsearch.MaxLimit {
		c.problem(path+".limit",
			fmt.Sprintf("%d is not a number from 1 to %d", s.Limit, toolsearch.MaxLimit),
			"callers can ask for more than the default")
	}
	if namespace != "" && namespace != "always" {
		c.problem(path, "with search, names are always qualified, and the namespace is "+namespace,
			"remove namespace")
	}
}
