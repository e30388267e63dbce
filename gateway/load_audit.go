package gateway

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// auditAlone refuses an audit in a file that is something else: lines would be written to it, and
// it would be renamed. The same goes for the names of files before the audit, which are renamed and
// deleted.
func (r *reader) auditAlone(c *Config) {
	if c.Guard == nil || c.Guard.Audit.File == "" || c.Guard.Audit.File == "-" {
		return
	}
	bare := *c
	bare.Guard = nil
	for _, other := range slices.Concat(r.read, bare.Private(), []string{c.Guard.LocksFile, c.Lock, c.TLS.Cert, c.TLS.ClientCA}) {
		if other != "" && ofAudit(c.Guard.Audit.File, other) {
			r.problem("guard.audit.file", other+" is another file of the configuration, or would be taken for one before the audit", "write the audit to its own file")
			return
		}
	}
}

// ofAudit reports whether a file is that of an audit, or has the name of one before it: FILE.1,
// FILE.2 and so on.
func ofAudit(audit, other string) bool {
	a, errA := filepath.Abs(audit)
	b, errB := filepath.Abs(other)
	if errA != nil || errB != nil {
		return false
	}
	if number, is := strings.CutPrefix(b, a+"."); is && number != "" && strings.Trim(number, "0123456789") == "" {
		return true
	}
	first, errA := os.Stat(a)
	second, errB := os.Stat(b)
	return a == b || errA == nil && errB == nil && os.SameFile(first, second)
}
