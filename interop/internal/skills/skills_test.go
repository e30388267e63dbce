package skills

import (
	"encoding/json"
	"strings"
	"testing"
)

const (
	uri      = "skill://pdf/SKILL.md"
	document = "---\nname: pdf\ndescription: PDFs\nversion: 2\n---\n\n# PDF\n"
)

func entry(t *testing.T) *Entry {
	t.Helper()
	fields, err := Frontmatter([]byte(document))
	if err != nil {
		t.Fatal(err)
	}
	return &Entry{URI: uri, Frontmatter: fields, Resources: Files{
		NewFile(uri, []byte(document)), NewFile("skill://pdf/FORMS.md", []byte("Forms\n")),
	}}
}

func TestVerify(t *testing.T) {
	other := entry(t)
	other.Frontmatter["description"] = "Anything"
	dynamic := &Entry{URI: uri, Frontmatter: entry(t).Frontmatter}
	for _, test := range []struct {
		name         string
		entry        *Entry
		uri, content string
		want         string // of the error; "": none
	}{
		{"as announced", entry(t), uri, document, ""},
		{"another file", entry(t), "skill://pdf/FORMS.md", "Forms\n", ""},
		{"other bytes", entry(t), uri, strings.ToUpper(document), "digest"},
		{"more bytes", entry(t), uri, document + "more", "bytes"},
		{"other frontmatter", other, uri, document, "frontmatter"},
		{"a file of another skill", entry(t), "skill://other/SKILL.md", document, "none of"},
		{"unknown files", dynamic, uri, document, ""},
		{"unknown files, other frontmatter", dynamic, uri, strings.ToUpper(document), "frontmatter"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := test.entry.Verify(test.uri, []byte(test.content))
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("Verify: %v; want %q", err, test.want)
			}
		})
	}
}

func TestFrontmatter(t *testing.T) {
	for _, test := range []struct{ document, name string }{
		{document, "pdf"},
		{strings.ReplaceAll(document, "\n", "\r\n"), "pdf"},
		{"\ufeff" + document, "pdf"},
		{"---\nname: pdf\n---", "pdf"},
		{"name: pdf\n", ""},
		{"---\nname: pdf\n", ""},
		{"---\n\tname\n---\n", ""},
	} {
		fields, err := Frontmatter([]byte(test.document))
		if got, _ := fields["name"].(string); got != test.name || (err == nil) != (test.name != "") {
			t.Errorf("Frontmatter(%q) = %v, %v; want the name %q", test.document, fields, err, test.name)
		}
	}
}

func TestFiles(t *testing.T) {
	var e Entry
	if err := json.Unmarshal([]byte(`{"resources":"dynamic"}`), &e); err != nil || e.Resources != nil {
		t.Errorf("dynamic: %v, %v", e.Resources, err)
	}
	if err := json.Unmarshal([]byte(`{"resources":[{"uri":"a","digest":"b","size":3}]}`), &e); err != nil || len(e.Resources) != 1 {
		t.Errorf("a list: %v, %v", e.Resources, err)
	}
	if err := json.Unmarshal([]byte(`{"resources":"static"}`), &e); err == nil {
		t.Error("another word is accepted")
	}
}
