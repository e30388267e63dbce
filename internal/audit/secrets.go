package audit

// Secrets finds secrets in foreign text by the rules of [Redact], for callers that put something
// else in their place. It is not safe for concurrent use.
type Secrets struct {
	rules *rules
	name  []byte
}

// NewSecrets returns a Secrets with patterns of names and paths, as Redact takes them.
func NewSecrets(patterns []string) *Secrets { return &Secrets{rules: compile(patterns)} }

// Named reports whether the value of a member with the name is a secret.
func (s *Secrets) Named(name []byte) bool {
	s.name = normalize(s.name[:0], name)
	return s.rules.secret(s.name)
}

// Placed reports whether a pattern with dots stands for the path. Without such patterns it is
// false.
func (s *Secrets) Placed(path [][]byte) bool {
	if s.rules.paths == nil {
		return false
	}
	names := make([]string, len(path))
	for i, name := range path {
		names[i] = string(normalize(nil, name))
	}
	return s.rules.secretPath(names)
}

// Mask returns text in which put has appended something else in place of each secret: text itself
// when it has none.
func (s *Secrets) Mask(text []byte, put func(dst, secret []byte) []byte) []byte {
	if !suspicious(text) {
		return text
	}
	return s.rules.replace(text, false, put)
}
