package admin

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"html/template"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/farcall-dev/farcall/internal/jsonv2"
)

// What is shown of a text at most, in characters. The JSON has all of it.
const (
	longestState = 24
	longestName  = 200
	longestText  = 400
	longestBlock = 8000
	mostLines    = 40
	mostTrouble  = 5
)

type view struct {
	*Status
	Now       time.Time
	Upstreams []upstreamView
	Tools     []toolView
	States    string // how many upstreams are in which state
	Up        int
	Troubled  int            // upstreams that are down
	Trouble   []upstreamView // the first of them
	Blocked   int            // tools
	Digest    string         // of the tools
	Same      bool           // the reader has them
}

type upstreamView struct {
	*UpstreamStatus
	ID     string
	Badge  badge
	Stderr []string
}

type toolView struct {
	*ToolStatus
	Shown, Source, SourceID string
}

// A badge says a state in a word; its class gives it colour and shape.
type badge struct{ Class, Text string }

func badgeOf(state string) badge {
	switch state {
	case "up":
		return badge{"ok", "up"}
	case "starting":
		return badge{"wait", "starting"}
	case "down":
		return badge{"bad", "down"}
	case "open":
		return badge{"bad", "breaker open"}
	case "":
		return badge{"quiet", "unknown"}
	}
	return badge{"quiet", visible(state, longestState)}
}

func newView(s *Status, now time.Time, known string) *view {
	v := &view{Status: s, Now: now, Digest: digest(s.Upstreams)}
	v.Same = known == v.Digest
	states := map[badge]int{}
	for i := range s.Upstreams {
		u := &s.Upstreams[i]
		id := "u" + strconv.Itoa(i)
		b := badgeOf(u.State)
		states[b]++
		switch b.Class {
		case "ok":
			v.Up++
		case "bad":
			v.Troubled++
		}
		shown := upstreamView{u, id, b, u.Stderr[max(0, len(u.Stderr)-mostLines):]}
		v.Upstreams = append(v.Upstreams, shown)
		if b.Class == "bad" && len(v.Trouble) < mostTrouble {
			v.Trouble = append(v.Trouble, shown)
		}
		for j := range u.Tools {
			tool := &u.Tools[j]
			if tool.Blocked != "" {
				v.Blocked++
			}
			shown := tool.Shown
			if shown == "" {
				shown = tool.Name
			}
			v.Tools = append(v.Tools, toolView{tool, shown, u.Name, id})
		}
	}
	v.States = countStates(states)
	// What needs attention comes first, the rest in the order of the upstreams.
	slices.SortStableFunc(v.Tools, func(a, b toolView) int {
		return first(b.Blocked != "") - first(a.Blocked != "")
	})
	return v
}

func first(is bool) int {
	if is {
		return 1
	}
	return 0
}

// countStates is "3 up, 1 down".
func countStates(states map[badge]int) string {
	order := []string{"bad", "wait", "ok", "quiet"}
	all := make([]badge, 0, len(states))
	for b := range states {
		all = append(all, b)
	}
	slices.SortFunc(all, func(a, b badge) int {
		if d := slices.Index(order, a.Class) - slices.Index(order, b.Class); d != 0 {
			return d
		}
		return strings.Compare(a.Text, b.Text)
	})
	texts := make([]string, len(all))
	for i, b := range all {
		texts[i] = strconv.Itoa(states[b]) + " " + b.Text
	}
	return strings.Join(texts, ", ")
}

// digest is the same as long as the list of tools is.
func digest(upstreams []UpstreamStatus) string {
	sum := sha256.New()
	for i := range upstreams {
		text, err := jsonv2.Append(nil, []any{upstreams[i].Name, upstreams[i].Tools})
		if err != nil {
			return "" // nothing is left out then
		}
		sum.Write(text)
	}
	return hex.EncodeToString(sum.Sum(nil)[:12])
}

// key names a part of the page, so that the script knows it again.
func key(names ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(names, "\x00")))
	return hex.EncodeToString(sum[:8])
}

func functions() template.FuncMap {
	return template.FuncMap{
		"key":   key,
		"brief": func(s string) string { return visible(s, longestState) },
		"name":  func(s string) string { return visible(s, longestName) },
		"text":  func(s string) string { return visible(s, longestText) },
		"long":  func(s string) string { return visible(s, longestBlock) },
		"line":  func(s string) string { return visible(strings.Join(strings.Fields(s), " "), longestText) },
		"lines": visibleLines, "diff": diffLines,
		"count": count, "short": short, "took": took, "ago": ago,
		"stamp": func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
		"clock": func(t time.Time) string { return t.UTC().Format("15:04:05 UTC") },
		"iso":   func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
		"join":  strings.Join,
	}
}

func visibleLines(lines []string) string {
	var b strings.Builder
	for i, line := range lines {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(visible(line, longestText))
	}
	return b.String()
}

type diffLine struct{ Class, Text string }

// diffLines tells what was added and what was removed, by the first character.
func diffLines(diff string) []diffLine {
	var lines []diffLine
	for line := range strings.SplitSeq(strings.TrimRight(visible(diff, longestBlock), "\n"), "\n") {
		class := ""
		switch {
		case strings.HasPrefix(line, "+"):
			class = "added"
		case strings.HasPrefix(line, "-"):
			class = "removed"
		}
		lines = append(lines, diffLine{class, line})
	}
	return lines
}

// visible returns at most so many characters of a text, without the colours of
// terminals. Characters that cannot be seen, or that turn the order of others
// around, are written as U+202E.
func visible(s string, most int) string {
	var b strings.Builder
	n := 0
	for i := 0; i < len(s); {
		if n++; n > most {
			b.WriteString(" …")
			break
		}
		if skip := escapeSequence(s[i:]); skip > 0 {
			i += skip
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		i += size
		switch {
		case r == '\n' || r == '\t' || r == '\u200c' || r == '\u200d':
			b.WriteRune(r)
		case r == '\r':
		case unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Zl, unicode.Zp):
			fmt.Fprintf(&b, "U+%04X", r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// escapeSequence returns the length of a terminal's control sequence
// (ECMA-48, section 5.4) at the beginning of s, or 0.
func escapeSequence(s string) int {
	if !strings.HasPrefix(s, "\x1b[") {
		return 0
	}
	for i := 2; i < min(len(s), 32); i++ {
		if c := s[i]; c >= 0x40 && c <= 0x7e {
			return i + 1
		} else if c < 0x20 {
			return 0
		}
	}
	return 0
}

// count writes a number in groups of three digits.
func count(n any) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// short is count below a million; larger numbers have three digits and an M or G.
func short(n any) string {
	s := fmt.Sprint(n)
	digits, unit := len(s)-6, "M"
	if digits > 3 {
		digits, unit = digits-3, "G"
	}
	if digits < 1 || digits > 3 {
		return count(n)
	}
	if digits == 3 {
		return s[:3] + " " + unit
	}
	return s[:digits] + "." + s[digits:3] + " " + unit
}

// took writes a latency with two digits or more.
func took(d time.Duration) string {
	switch ms := milliseconds(d); {
	case d <= 0:
		return "–"
	case ms < 10:
		return strconv.FormatFloat(ms, 'f', 2, 64) + " ms"
	case ms < 1000:
		return strconv.FormatFloat(ms, 'f', 0, 64) + " ms"
	default:
		return strconv.FormatFloat(ms/1000, 'f', 1, 64) + " s"
	}
}

// ago writes the time from then to now in its two largest units.
func ago(then, now time.Time) string {
	seconds := max(0, int64(now.Sub(then)/time.Second))
	switch {
	case seconds < 60:
		return fmt.Sprintf("%d s", seconds)
	case seconds < 3600:
		return fmt.Sprintf("%d min %02d s", seconds/60, seconds%60)
	case seconds < 24*3600:
		return fmt.Sprintf("%d h %02d min", seconds/3600, seconds/60%60)
	default:
		return fmt.Sprintf("%d d %02d h", seconds/(24*3600), seconds/3600%24)
	}
}
