// Package route answers one question: which upstream has what a caller names,
// and under which name do callers know it?
//
// A View merges the lists of several sources into one. It knows nothing of
// connections: a source gives its lists by a function. What the sources say is
// taken for hostile text: it is bounded, checked, and left out where it cannot
// be routed without doubt.
//
// Names. A tool or a prompt keeps its name unless its source always has a
// prefix, or another source has the name too: then all of those that share it
// are called SOURCE__name. So is a name that looks like another source's with a
// prefix. A URI, or a URI template, is kept by the first source
// that has it, in the order of the sources; that of another one is shown as
// SOURCE+uri. A call may always use the long form, also of what is shown with
// the short one. What a source that is down had, as far as it is known, still
// counts: the names of the others do not change when it goes and comes back.
package route
