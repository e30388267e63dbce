// Package watch answers one question: has a file changed?
package watch

import (
	"context"
	"maps"
	"os"
	"sync"
	"time"
)

// Every is how often files are looked at. Asking works on every file system,
// and for files that are links to others.
const Every = time.Second

// Files reads files again when one of them has changed.
type Files struct {
	// read reads the files, and returns which there are now.
	read func(files []string) []string

	reading sync.Mutex
	mu      sync.Mutex
	list    []string
	seen    map[string]fileStamp // as they were when they were read
}

// fileStamp tells versions of a file apart; the zero one is of no file.
type fileStamp struct{ size, nanos int64 }

// New returns a watch of files, which were read before. read reads them again, and returns which
// files there are now. [Files.Run] must be started.
func New(files []string, read func(files []string) []string) *Files {
	return &Files{read: read, list: files, seen: stamps(files)}
}

func stamps(files []string) map[string]fileStamp {
	m := make(map[string]fileStamp, len(files))
	for _, file := range files {
		m[file] = fileStamp{}
		if info, err := os.Stat(file); err == nil {
			m[file] = fileStamp{info.Size(), info.ModTime().UnixNano()}
		}
	}
	return m
}

func (w *Files) files() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.list
}

// Reload reads the files.
func (w *Files) Reload() {
	w.reading.Lock()
	defer w.reading.Unlock()
	old := w.files()
	before := stamps(old) // what changes from now on shall be noticed
	list := w.read(old)
	seen := stamps(list)
	for file := range seen {
		if stamp, ok := before[file]; ok {
			seen[file] = stamp
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.list, w.seen = list, seen
}

// Run reads the files, until the context ends, when one is not as it was, and has then been left
// alone for a moment: editors write a file in several steps, and some take it away between.
func (w *Files) Run(ctx context.Context) {
	tick := time.NewTicker(Every)
	defer tick.Stop()
	last := stamps(w.files())
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		files := w.files()
		now := stamps(files)
		if maps.Equal(now, last) && w.differs(now) && now[files[0]] != (fileStamp{}) {
			w.Reload()
			now = stamps(w.files())
		}
		last = now
	}
}

// differs reports whether files are not as they were when they were read.
func (w *Files) differs(now map[string]fileStamp) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !maps.Equal(now, w.seen)
}
