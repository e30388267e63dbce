package gateway

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/farcall-dev/farcall/internal/edits"
	"github.com/farcall-dev/farcall/internal/size"
	"github.com/farcall-dev/farcall/observe/levels"
)

// value returns a scalar with what it refers to.
func (r *reader) value(n *node, path string) (string, bool) {
	r.origin = ""
	switch n.kind {
	case scalarNode:
		text, ok := r.expand(n, path, n.text)
		if text != n.text {
			r.written[path] = n.text
			put(&r.values, path, text)
		}
		return text, ok
	case nullNode:
		r.problemAt(n.at, path, "it has no value", `give one, or leave the key out; "" is the empty text`)
	default:
		r.wrongKind(n, path, "one value is wanted")
	}
	return "", false
}

// scalar reads one value; what refers to something that is missing is reported and not read.
func (r *reader) scalar(read func(n *node, path, text string)) take {
	return func(n *node, path string) {
		if text, ok := r.value(n, path); ok {
			read(n, path, text)
		}
	}
}

func (r *reader) text(dst *string) take {
	return r.scalar(func(_ *node, _, text string) { *dst = text })
}

// path reads a path that is relative to the file.
func (r *reader) path(dst *string) take {
	return r.scalar(func(_ *node, _, text string) {
		if text != "" {
			*dst = r.beside(text)
		}
	})
}

// log reads the levels of the log.
func (r *reader) log(c *Config, n *node, path string) {
	r.fields(n, path,
		map[string]take{"level": r.text(&c.Log.Level), "components": func(n *node, path string) {
			c.Log.Components = map[string]string{}
			r.table(&c.Log.Components)(n, path)
		}})
}

func (r *reader) beside(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(r.dir, path)
}

func (r *reader) flag(dst *bool) take {
	return r.scalar(func(n *node, path, text string) {
		if text != "true" && text != "false" {
			r.problemAt(n.at, path, fmt.Sprintf("%q is neither true nor false", n.text),
				"write true or false")
			return
		}
		*dst = text == "true"
	})
}

// count reads a number from 1.
func (r *reader) count(dst *int) take {
	return r.scalar(func(n *node, path, text string) {
		number, err := strconv.Atoi(text)
		if err != nil || number < 1 || number > 1<<30 {
			r.problemAt(n.at, path, fmt.Sprintf("%q is not a number from 1", n.text),
				"write a whole number, or leave the key out for the default")
			return
		}
		*dst = number
	})
}

// duration reads a time greater than zero, such as 30s.
func (r *reader) duration(dst *time.Duration) take {
	return r.scalar(func(n *node, path, text string) {
		d, err := time.ParseDuration(text)
		hint := "write a number with its unit: 500ms, 30s, 5m, 1h"
		if _, bare := strconv.ParseFloat(text, 64); bare == nil && text != "0" && r.written[path] == "" {
			hint = "it has no unit; write " + text + "s if it is in seconds"
		}
		switch {
		case err != nil:
			r.problemAt(n.at, path, fmt.Sprintf("%q is not a duration", n.text), hint)
		case d <= 0:
			r.problemAt(n.at, path, fmt.Sprintf("%q must be greater than zero", n.text),
				"write 30s, or leave the key out for the default")
		default:
			*dst = d
		}
	})
}

// days reads a duration, which may be a number of days: 90d.
func (r *reader) days(dst *time.Duration) take {
	return r.scalar(func(n *node, path, text string) {
		const most = 36500 // days; more are no time.Duration
		if digits, ok := strings.CutSuffix(text, "d"); ok {
			if days, err := strconv.Atoi(digits); err == nil && days > 0 && days <= most {
				*dst = time.Duration(days) * 24 * time.Hour
				return
			}
			r.problemAt(n.at, path, fmt.Sprintf("%q is not a number of days from 1 to %d", n.text, most),
				"write 90d, or a number of hours: 36h")
			return
		}
		r.duration(dst)(n, path)
	})
}

// maxMessage bounds the sizes of what is held in memory.
const maxMessage = 1 << 30

// size reads a number of bytes, such as 10MB.
func (r *reader) size(dst *int64) take { return r.sizeTo(dst, maxMessage, "1GiB") }

// sizeTo is size with another bound.
func (r *reader) sizeTo(dst *int64, most int64, bound string) take {
	return r.scalar(func(n *node, path, text string) {
		bytes, ok := size.Parse(text, 1000, most)
		if !ok {
			r.problemAt(n.at, path, fmt.Sprintf("%q is not a size from 1KB to %s", n.text, bound),
				"write 10MB, 512KiB or a number of bytes")
			return
		}
		*dst = bytes
	})
}

// smallSize is size for an int.
func (r *reader) smallSize(dst *int) take {
	return func(n *node, path string) {
		var bytes int64
		r.size(&bytes)(n, path)
		*dst = int(bytes)
	}
}

func (r *reader) texts(dst *[]string) take {
	return func(n *node, path string) {
		if n.kind != listNode {
			r.wrongKind(n, path, "a list is wanted")
			return
		}
		one := r.scalar(func(_ *node, _, text string) { *dst = append(*dst, text) })
		for i, item := range n.list {
			below := path + "[" + strconv.Itoa(i) + "]"
			r.spots[below] = item.at
			one(item, below)
		}
	}
}

// oneOrMore reads a list, or one value.
func (r *reader) oneOrMore(dst *[]string) take {
	list := r.texts(dst)
	return func(n *node, path string) {
		if n.kind == scalarNode {
			n = &node{kind: listNode, at: n.at, list: []*node{n}}
		}
		list(n, path)
	}
}

func (r *reader) table(dst *map[string]string) take {
	return func(n *node, path string) {
		r.each(n, path, func(m member, path string) {
			r.scalar(func(_ *node, _, text string) { put(dst, m.key, text) })(m.value, path)
		})
	}
}

// items reads a list of maps, or the one there is.
func (r *reader) items(read take) take {
	return func(n *node, path string) {
		if n.kind != listNode {
			n = &node{kind: listNode, at: n.at, list: []*node{n}}
		}
		for i, item := range n.list {
			below := path + "[" + strconv.Itoa(i) + "]"
			r.spots[below] = item.at
			if item.kind == nullNode {
				r.problemAt(item.at, below, "is empty", "remove it")
				continue
			}
			read(item, below)
		}
	}
}

// date reads a day, which is its beginning in UTC, or a time (RFC 3339).
func (r *reader) date(dst *time.Time) take {
	return r.scalar(func(n *node, path, text string) {
		for _, layout := range []string{time.DateOnly, time.RFC3339} {
			if t, err := time.Parse(layout, text); err == nil {
				*dst = t
				return
			}
		}
		r.problemAt(n.at, path, fmt.Sprintf("%q is not a date", n.text),
			"write 2030-01-31 or 2030-01-31T12:00:00Z")
	})
}

func put(dst *map[string]string, key, value string) {
	if *dst == nil {
		*dst = map[string]string{}
	}
	(*dst)[key] = value
}

// nearest returns the word that was probably meant, or "".
func nearest(word string, words []string) string {
	return nearestOf(word, words, func(string) bool { return true })
}

// nearestOf is nearest among the words that may be named. It asks about those that are near.
func nearestOf(word string, words []string, may func(word string) bool) string {
	plain := func(s string) string {
		return strings.ToLower(strings.NewReplacer("_", "", "-", "", " ", "").Replace(s))
	}
	word = plain(word)
	best, least := "", min(len(word)/3+1, 3)
	if len(word) > 100 {
		return ""
	}
	for _, w := range slices.Sorted(slices.Values(words)) {
		p := plain(w)
		if len(p) > len(word)+least || len(word) > len(p)+least {
			continue
		}
		if d := edits.Distance(word, p); (d < least || d == least && best == "" && d < len(p)) && may(w) {
			best, least = w, d
		}
	}
	return best
}

// either writes a choice: "a, b or c".
func either(words ...string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// logConfig is the type of Config.Log.
type logConfig = struct {
	Level      string
	Components map[string]string
}

// LogLevels returns Log as levels.Levels.Replace reads it, "" when the configuration does not say
// it.
func (c *Config) LogLevels() string {
	if c.Log.Level == "" && len(c.Log.Components) == 0 {
		return ""
	}
	all := []string{"info"}
	if c.Log.Level != "" {
		all[0] = c.Log.Level
	}
	for _, name := range slices.Sorted(maps.Keys(c.Log.Components)) {
		all = append(all, name+"="+c.Log.Components[name])
	}
	return strings.Join(all, ",")
}

// log checks the levels of the log.
func (c *checker) log(conf *logConfig) {
	c.choice("log.level", "level", conf.Level, levels.Names()...)
	for _, name := range slices.Sorted(maps.Keys(conf.Components)) {
		path := join("log.components", name)
		if !slices.Contains(levels.Standard(), name) {
			c.problem(path, "there is no such component of the log", "use "+either(levels.Standard()...))
			continue
		}
		c.choice(path, "level", conf.Components[name], levels.Names()...)
		if conf.Components[name] == "" {
			c.problem(path, "it has no level", "use "+either(levels.Names()...))
		}
	}
}
