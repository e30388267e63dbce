package main

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/interop/internal/skills"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// skillFiles has a directory for each skill.
//
//go:embed skills
var skillFiles embed.FS

const skillScheme = "skill://"

// cacheable is what the results below have in common with lists.
type cacheable struct {
	TTLMS      int64  `json:"ttlMs"`
	CacheScope string `json:"cacheScope"`
}

var forMinutes = cacheable{TTLMS: 60_000, CacheScope: spec.CachePublic}

// The params and results of the extension's methods. All of it fits on a page.
type (
	page struct {
		Cursor string `json:"cursor,omitempty"`
	}
	skillList struct {
		cacheable
		Skills []skills.Entry `json:"skills"`
	}
	byURI struct {
		URI    string `json:"uri"`
		Cursor string `json:"cursor,omitempty"`
	}
	skillResult struct {
		cacheable
		Skill skills.Entry `json:"skill"`
	}
	directory struct {
		cacheable
		Resources []mcp.Resource `json:"resources"`
	}
)

// addSkills adds the skills extension (SEP-2640): what an extension needs is its
// declaration, its methods, and here the resources that it is about.
func addSkills(s *mcp.Server) {
	entries, err := addSkillResources(s)
	if err != nil {
		panic(err) // the files are in the program
	}
	methods := farcall.NewMux()
	farcall.Handle(methods, skills.List, func(context.Context, page) (skillList, error) {
		return skillList{forMinutes, entries}, nil
	})
	farcall.Handle(methods, skills.Get, func(_ context.Context, p byURI) (r skillResult, err error) {
		for _, e := range entries {
			if e.URI == p.URI {
				return skillResult{forMinutes, e}, nil
			}
		}
		return r, jsonrpc.Errorf(jsonrpc.InvalidParams, "there is no skill %q", p.URI)
	})
	farcall.Handle(methods, skills.ReadDirectory, func(_ context.Context, p byURI) (directory, error) {
		children, err := readDirectory(p.URI)
		return directory{forMinutes, children}, err
	})
	for _, method := range []string{skills.List, skills.Get, skills.ReadDirectory} {
		s.Handle(method, methods)
	}
	s.AddExtension(skills.Extension, map[string]any{"directoryRead": true})
}

// addSkillResources adds the files of all skills as resources and returns the
// entries of the skills.
func addSkillResources(s *mcp.Server) (entries []skills.Entry, err error) {
	dirs, err := fs.ReadDir(skillFiles, "skills")
	if err != nil {
		return nil, err
	}
	for _, dir := range dirs {
		e := skills.Entry{URI: skillScheme + dir.Name() + "/SKILL.md"}
		err := fs.WalkDir(skillFiles, "skills/"+dir.Name(), func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			content, err := fs.ReadFile(skillFiles, name)
			if err != nil {
				return err
			}
			r := resourceOf(name, d)
			e.Resources = append(e.Resources, skills.NewFile(r.URI, content))
			if r.URI == e.URI {
				if e.Frontmatter, err = skills.Frontmatter(content); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				r.Name, _ = e.Frontmatter["name"].(string)
				r.Description, _ = e.Frontmatter["description"].(string)
			}
			s.AddResource(r, func(context.Context, string) ([]mcp.ResourceContents, error) {
				return []mcp.ResourceContents{{Text: string(content)}}, nil
			})
			return nil
		})
		if err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// readDirectory returns what is in a directory of a skill.
func readDirectory(uri string) ([]mcp.Resource, error) {
	name := path.Join("skills", strings.TrimPrefix(uri, skillScheme))
	children, err := fs.ReadDir(skillFiles, name)
	if err != nil || !strings.HasPrefix(uri, skillScheme) {
		return nil, jsonrpc.Errorf(jsonrpc.InvalidParams, "%q is no directory of a skill", uri)
	}
	resources := []mcp.Resource{}
	for _, child := range children {
		resources = append(resources, resourceOf(path.Join(name, child.Name()), child))
	}
	return resources, nil
}

// resourceOf describes an embedded file or directory.
func resourceOf(name string, d fs.DirEntry) mcp.Resource {
	relative := strings.TrimPrefix(name, "skills/")
	r := mcp.Resource{URI: skillScheme + relative, Name: d.Name(), Description: relative + " of the skills", MIMEType: "text/markdown"}
	if d.IsDir() {
		r.MIMEType = "inode/directory"
	}
	return r
}
