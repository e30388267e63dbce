// Package route answers one question: which upstream has what a caller names,
// and under which name do callers know it?
//
// A View merges the lists of several sources into one. It knows nothing of
// connections: a source gives its lists by a function. What the sources say is
// taken for hostile text: it is bounded, checked, and left out where it cannot
// be routed without doubt.
//
// Names. Everything is shown in the qualified form of its source (package refs), which does not
// depend on the other sources: SOURCE__tool, LABEL+uri, ui://LABEL+/x. Web URIs stay as they are.
// The rules of a source may say otherwise: with NamespaceAuto a tool or a prompt has its own name
// unless another source has it too, and with NamespaceNever everything has. A call may always use
// the qualified form. A name without a qualifier leads to the only source that has it; an
// *AmbiguousError says that there are several: the order of the sources decides nothing.
package route
