// Package skills has what both sides of the skills extension (SEP-2640) share: a
// skill is a directory of files, with a SKILL.md, that a server serves as
// resources. Its entry says what they must be, and a client uses none that is
// anything else.
package skills

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"go.yaml.in/yaml/v3"
)

// What the extension is called, and its methods.
const (
	Extension     = "io.modelcontextprotocol/skills"
	List          = "skills/list"
	Get           = "skills/get"
	ReadDirectory = "resources/directory/read"
)

// Entry describes a skill.
type Entry struct {
	URI         string         `json:"uri"`         // of its SKILL.md
	Frontmatter map[string]any `json:"frontmatter"` // of its SKILL.md
	Resources   Files          `json:"resources"`
}

// Files are all files of a skill, SKILL.md too. Nil: the server does not say.
type Files []File

// File is what a file of a skill must be.
type File struct {
	URI    string `json:"uri"`
	Digest string `json:"digest"`
	Size   int    `json:"size"`
}

// UnmarshalJSON reads the files, or the word that stands for unknown ones.
func (f *Files) UnmarshalJSON(raw []byte) error {
	if string(raw) == `"dynamic"` {
		*f = nil
		return nil
	}
	return json.Unmarshal(raw, (*[]File)(f))
}

// NewFile describes a file.
func NewFile(uri string, content []byte) File {
	sum := sha256.Sum256(content)
	return File{URI: uri, Digest: "sha256:" + hex.EncodeToString(sum[:]), Size: len(content)}
}

// Frontmatter reads the YAML at the beginning of a SKILL.md.
func Frontmatter(document []byte) (map[string]any, error) {
	document = bytes.ReplaceAll(bytes.TrimPrefix(document, []byte("\ufeff")), []byte("\r\n"), []byte("\n"))
	rest, begins := bytes.CutPrefix(document, []byte("---\n"))
	head, _, ends := bytes.Cut(append(rest, '\n'), []byte("\n---\n"))
	if !begins || !ends {
		return nil, errors.New("there is no frontmatter between lines of ---")
	}
	var fields map[string]any
	if err := yaml.Unmarshal(head, &fields); err != nil {
		return nil, fmt.Errorf("the frontmatter is not valid: %w", err)
	}
	return fields, nil
}

// Verify reports in what way the content of a file is not what the entry says.
// Such content must not be used.
func (e *Entry) Verify(uri string, content []byte) error {
	if err := e.verifyFile(uri, content); err != nil {
		return fmt.Errorf("%s is not what the server has announced: %w", uri, err)
	}
	return nil
}

func (e *Entry) verifyFile(uri string, content []byte) error {
	got, known := NewFile(uri, content), e.Resources == nil
	for _, want := range e.Resources {
		switch {
		case want.URI != uri:
			continue
		case want.Size != got.Size:
			return fmt.Errorf("it has %d bytes, not %d", got.Size, want.Size)
		case want.Digest != got.Digest:
			return fmt.Errorf("its digest is %s, not %s", got.Digest, want.Digest)
		}
		known = true
	}
	if !known {
		return errors.New("it is none of the skill's files")
	}
	if uri != e.URI {
		return nil
	}
	fields, err := Frontmatter(content)
	if err != nil {
		return err
	}
	if !sameJSON(fields, e.Frontmatter) {
		return fmt.Errorf("its frontmatter is %v, not %v", fields, e.Frontmatter)
	}
	return nil
}

// sameJSON compares what was read from YAML with what was read from JSON.
func sameJSON(a, b any) bool {
	var values [2]any
	for i, v := range [...]any{a, b} {
		raw, err := json.Marshal(v)
		if err != nil || json.Unmarshal(raw, &values[i]) != nil {
			return false
		}
	}
	return reflect.DeepEqual(values[0], values[1])
}
