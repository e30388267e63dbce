// Package toolsearch answers one question: which tools of a catalogue fit some words?
//
// An [Index] is built once for a catalogue and does not change. It ranks by BM25F: the
// fields of a tool (its name, title, description and parameters) have weights, and a word
// that few tools have counts more. A [Search] counts only the tools that its caller may use,
// in every number that it uses: a tool that is hidden changes no byte of an answer. The same
// catalogue and the same words give the same answer. Nothing is locked and nothing is read
// from outside.
//
// The definitions come from upstreams and are not trusted. Each field has a limit of words, so
// that a long text does not win by its length, and a result holds the text of a tool only in
// the entry of that tool.
package toolsearch
