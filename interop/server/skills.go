package main

import (
	"embed"
	"io/fs"
	"time"

	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/skills"
)

// skillFiles has a directory for each skill.
//
//go:embed skills
var skillFiles embed.FS

// addSkills adds the skills extension (SEP-2640).
func addSkills(s *mcp.Server) {
	root, err := fs.Sub(skillFiles, "skills")
	if err == nil {
		_, err = skills.Add(s, root, &skills.Options{CacheTTL: time.Minute})
	}
	if err != nil {
		panic(err) // the files are in the program
	}
}
