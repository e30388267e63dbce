package skills_test

import (
	"context"
	"fmt"
	"log"
	"testing/fstest"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/skills"
)

// A server offers the skills in a folder, and a client loads one of them. In a program the folder
// is an [os.Root], or an embed.FS.
func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	folder := fstest.MapFS{
		"release-notes/SKILL.md": {
			Data: []byte(
				"---\nname: release-notes\ndescription: Write release notes\n---\nFollow style.md.\n"),
		},
		"release-notes/style.md": {Data: []byte("Short sentences.\n")},
	}
	s := mcp.NewServer("docs", "1.0.0", nil)
	refresh, err := skills.Add(s, folder, nil)
	if err != nil {
		log.Fatal(err)
	}
	_ = refresh // reads the folder again, and tells clients what has changed

	mine, theirs := farcall.Pipe()
	go s.Serve(ctx, theirs)
	c, err := mcp.Connect(ctx, mine, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	all, err := skills.List(ctx, c)
	if err != nil {
		log.Fatal(err)
	}
	for _, skill := range all {
		fmt.Println(skill.Name+":", skill.Description)
		text, err := skill.Read(ctx, skill.URI) // verified by the digest in the list
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s", text)
	}
	// Output:
	// release-notes: Write release notes
	// ---
	// name: release-notes
	// description: Write release notes
	// ---
	// Follow style.md.
}
