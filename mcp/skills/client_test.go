package skills

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
)

// liar is a server that says anything.
func liar(t *testing.T, list, content string) *mcp.Client {
	t.Helper()
	s := mcp.NewServer("liar", "1", nil)
	s.AddExtension(extension, nil)
	answer := func(text string) farcall.Handler {
		return farcall.HandlerFunc(func(context.Context, *farcall.Request) (any, error) {
			return jsonrpc.Raw(text), nil
		})
	}
	s.Handle(methodList, answer(list))
	s.Handle(methodGet, answer(list))
	for _, uri := range []string{"skill://pdf/SKILL.md", "skill://pdf/b", "skill://other"} {
		s.AddResource(mcp.Resource{URI: uri, Name: "x"},
			func(context.Context, string) ([]mcp.ResourceContents, error) {
				return []mcp.ResourceContents{{Text: content}}, nil
			})
	}
	return serve(t, s, nil)
}

func entryOf(uri, frontmatter, resources string) string {
	return fmt.Sprintf(`{"uri":%q,"frontmatter":%s,"resources":%s}`, uri, frontmatter, resources)
}

const (
	pdfURI   = "skill://pdf/SKILL.md"
	pdfFront = `{"name":"pdf","description":"Fills PDF forms","metadata":{"version":"2.1"}}`
)

func filesOf(files ...listed) string {
	var all []string
	for _, f := range files {
		all = append(all, fmt.Sprintf(`{"uri":%q,"digest":%q,"size":%d}`, f.URI, f.Digest, f.Size))
	}
	return "[" + strings.Join(all, ",") + "]"
}

// TestVerified: a file is used only if it is what the entry says.
func TestVerified(t *testing.T) {
	own := describe(pdfURI, []byte(pdf))
	for name, test := range map[string]struct {
		entry, content, uri string
		ok                  bool
	}{
		"as announced": {entryOf(pdfURI, pdfFront, filesOf(own)), pdf, pdfURI, true},
		"other bytes": {
			entryOf(pdfURI, pdfFront, filesOf(own)), strings.ToUpper(pdf),
			pdfURI, false,
		},
		"more bytes": {entryOf(pdfURI, pdfFront, filesOf(own)), pdf + "x", pdfURI, false},
		"another size": {
			entryOf(pdfURI, pdfFront, filesOf(listed{own.URI, own.Digest, own.Size + 1})), pdf,
			pdfURI, false,
		},
		"upper case": {
			entryOf(pdfURI, pdfFront, filesOf(listed{own.URI, strings.ToUpper(own.Digest), own.Size})), pdf,
			pdfURI, false,
		},
		"another frontmatter": {
			entryOf(pdfURI, strings.Replace(pdfFront, "2.1", "2.2", 1), filesOf(own)), pdf, pdfURI, false,
		},
		"less frontmatter": {
			entryOf(pdfURI, `{"name":"pdf","description":"Fills PDF forms"}`, filesOf(own)), pdf,
			pdfURI, false,
		},
		"a file not listed": {entryOf(pdfURI, pdfFront, filesOf(own)), pdf, "skill://pdf/b", false},
		"dynamic":           {entryOf(pdfURI, pdfFront, `"dynamic"`), pdf + "x", pdfURI, true},
		"dynamic, a file":   {entryOf(pdfURI, pdfFront, `"dynamic"`), "x", "skill://pdf/b", true},
		"dynamic, other front": {
			entryOf(pdfURI, pdfFront, `"dynamic"`),
			strings.Replace(pdf, "2.1", "2", 1), pdfURI, false,
		},
		"dynamic, elsewhere": {entryOf(pdfURI, pdfFront, `"dynamic"`), "x", "skill://other", false},
		"dynamic, up":        {entryOf(pdfURI, pdfFront, `"dynamic"`), "x", "skill://pdf/../b", false},
	} {
		t.Run(name, func(t *testing.T) {
			c := liar(t, `{"skill":`+test.entry+`}`, test.content)
			s, err := Get(t.Context(), c, pdfURI)
			if err != nil {
				t.Fatal(err)
			}
			content, err := s.Read(t.Context(), test.uri)
			if test.ok && (err != nil || string(content) != test.content) ||
				!test.ok && (!errors.Is(err, ErrChanged) || content != nil) {
				t.Errorf("%q, %v", content, err)
			}
		})
	}
}

// TestInvalidEntries: they are left out, and the error says why.
func TestInvalidEntries(t *testing.T) {
	own := describe(pdfURI, []byte(pdf))
	good := entryOf(pdfURI, pdfFront, filesOf(own))
	for _, test := range []struct{ entry, want string }{
		{entryOf(pdfURI, pdfFront, "null"), "neither a list"},
		{entryOf(pdfURI, pdfFront, `"static"`), "neither a list"},
		{`{"uri":"` + pdfURI + `","frontmatter":` + pdfFront + `}`, "neither a list"},
		{entryOf(pdfURI, pdfFront, "[]"), "each other file once"},
		{entryOf(pdfURI, pdfFront, filesOf(own, own)), "each other file once"},
		{entryOf(pdfURI, pdfFront, filesOf(own, listed{URI: "skill://other/SKILL.md"})), "not within"},
		{entryOf(pdfURI, pdfFront, filesOf(own, listed{URI: "skill://pdf/../b"})), "not within"},
		{entryOf(pdfURI, pdfFront, filesOf(own, listed{URI: "skill://pdf/%2e%2E/b"})), "not within"},
		{
			entryOf(pdfURI, pdfFront, filesOf(own, listed{URI: "skill://pdf/..%2f..%2fetc%2fpasswd"})),
			"not within",
		},
		{entryOf(pdfURI, pdfFront, filesOf(own, listed{URI: `skill://pdf/..\..\x`})), "not within"},
		{entryOf(pdfURI, pdfFront, filesOf(own, listed{URI: "skill://pdf/..%5c..%5cx"})), "not within"},
		{entryOf(pdfURI, pdfFront, filesOf(own, listed{URI: "skill://pdf/a%00b"})), "not within"},
		{entryOf(pdfURI, pdfFront, filesOf(own, listed{URI: "skill://pdf/a?../../x"})), "not within"},
		{entryOf(pdfURI, pdfFront, filesOf(own, listed{URI: "skill://pdf/a//b"})), "not within"},
		{entryOf("skill://x/../pdf/SKILL.md", pdfFront, "[]"), "no plain path"},
		{entryOf("skill://%2e%2e/pdf/SKILL.md", pdfFront, "[]"), "no plain path"},
		{good, "listed twice"},
		{entryOf(pdfURI, pdfFront, filesOf(own, listed{URI: "skill://pdf/b", Size: -1})), "not within"},
		{
			entryOf(pdfURI, pdfFront, filesOf(own, listed{URI: "skill://pdf/b", Size: maxBytes})),
			"are allowed",
		},
		{entryOf("skill://pdf", pdfFront, filesOf(own)), "does not end in"},
		{entryOf("skill://x/SKILL.md", pdfFront, filesOf(own)), "that of its folder"},
		{entryOf(pdfURI, `{"name":"pdf"}`, filesOf(own)), "description"},
		{entryOf(pdfURI, `{"name":"pdf","description":""}`, filesOf(own)), "description"},
		{entryOf(pdfURI, `null`, filesOf(own)), "must be a map"},
	} {
		all, err := List(t.Context(), liar(t, `{"skills":[`+test.entry+","+good+`]}`, ""))
		if len(all) != 1 || all[0].URI != pdfURI || err == nil || !errors.Is(err, farcall.ErrProtocol) ||
			!strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, %v; want %q", test.entry, all, err, test.want)
		}
	}
	_, err := List(t.Context(), liar(t, `{"skills":[{}`+strings.Repeat(",{}", maxSkills-1)+`]}`, ""))
	if err == nil || len(err.Error()) > 10_000 ||
		!strings.Contains(err.Error(), fmt.Sprint(maxSkills-maxFaults, " more entries")) {
		t.Errorf("many invalid entries: %.1000v", err)
	}
	for _, list := range []string{
		`{"skills":[{}` + strings.Repeat(",{}", maxSkills) + `]}`,
		`{"skills":[],"nextCursor":"x"}`, `{"skills":{}}`, `{"skills":[1]}`,
	} {
		if all, err := List(t.Context(), liar(t, list, "")); !errors.Is(err, farcall.ErrProtocol) {
			t.Errorf("%.100s: %v, %v", list, all, err)
		}
	}
	if _, err := Get(t.Context(), liar(t, `{"skill":`+good+`}`, ""),
		"skill://other/SKILL.md"); !errors.Is(err, farcall.ErrProtocol) {
		t.Errorf("another skill: %v", err)
	}
}
