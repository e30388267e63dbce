package gateway

import (
	"crypto/sha256"
	"fmt"
	"sync"
)

// askers remembers the servers with questions that do not say which call they are about, by the
// digest of their configuration: such a server has a connection for each session from the start
// when a changed file brings it back as it was.
type askers struct {
	mu    sync.Mutex
	known map[[sha256.Size]byte]struct{}
}

// maxAskers bounds the configurations that are remembered.
const maxAskers = 1024

func (a *askers) has(u *Upstream) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, ok := a.known[u.digest()]
	return ok
}

func (a *askers) add(u *Upstream) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.known == nil || len(a.known) >= maxAskers {
		a.known = map[[sha256.Size]byte]struct{}{}
	}
	a.known[u.digest()] = struct{}{}
}

// digest tells which server a configuration starts or reaches.
func (u *Upstream) digest() [sha256.Size]byte {
	return sha256.Sum256(
		fmt.Appendf(nil, "%q %q %q %q %q %q", u.Command, u.Env, u.Cwd, u.URL, u.Transport, u.Era))
}
