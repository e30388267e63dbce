package valkeystore

import (
	"embed"
	"strings"

	"github.com/redis/go-redis/v9"
)

//go:embed scripts
var files embed.FS

// The scripts. Each is one step for the server. A comment at its top says what it takes: keys, then
// arguments.
var (
	born    = script("born")
	claim   = script("claim")
	release = script("release")
	take    = script("take")
	give    = script("give")

	put    = script("forget", "put")
	remove = script("forget", "remove")
	adopt  = script("adopt")

	// A queue has items that wait, those that are leased by the end of their lease, data and
	// attempts by item, and the bytes of all queues.
	push   = script("push")
	pull   = script("pull")
	done   = script("done")
	change = script("change")
)

// script returns the script of these files, one after another.
func script(names ...string) *redis.Script {
	var text strings.Builder
	for _, name := range names {
		b, err := files.ReadFile("scripts/" + name + ".lua")
		if err != nil {
			panic(err) //nolint:forbidigo // the file was there when the program was built
		}
		text.Write(b)
	}
	return redis.NewScript(text.String())
}
