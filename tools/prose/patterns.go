package main

import "regexp"

// A kind says where a text stands. A pattern may hold for some kinds only.
type kind uint8

const (
	comment kind = 1 << iota // a Go comment
	// a Go string literal: an error, a log line, a help text, the name of a subtest
	literal
	page       // Markdown, HTML, a testscript, a comment of a script
	identifier // the name of a Go declaration, split into its words
)

const (
	prose = comment | literal | page
	text  = comment | page
	every = prose | identifier
)

// A pattern is one rule of style: what it matches must not stand in a text.
type pattern struct {
	name  string
	in    kind
	match *regexp.Regexp
	// allow matches the uses of the word that are right. A match within a match of allow is no
	// finding.
	allow   *regexp.Regexp
	suggest string
	// bad and good are the examples that the test runs the pattern on.
	bad, good string
}

func re(s string) *regexp.Regexp { return regexp.MustCompile(`(?i)\b(?:` + s + `)\b`) }

// patterns are the rules of the language of the project. Names that docs, errors, logs and comments
// share are in docs/glossary.md.
var patterns = []pattern{
	// Negated pronouns as nouns.
	{
		"nobody", prose, re("nobody|no one"), regexp.MustCompile("`nobody`"),
		`name the noun: "no principal", "no client", "unauthenticated", "no … is configured"`,
		"nobody can get in", "no authentication method is configured",
	},
	{
		"nothing", prose, re(`more than nothing|what is nothing|nobody's`), nil,
		`"must be greater than zero", "does not …"`,
		`"0" is not more than nothing`, `"0": must be greater than zero`,
	},
	{
		"none", prose,
		re(`(?:it|that|which|what|who|this|he|one|(?:the|a|an) [a-z]+) (?:is|are|was|were) none|none ` +
			`of this list`),
		re(`there (?:is|are|was|were) none`), `"invalid", "not a …", "absent"`,
		"panics when the name is none", "panics if the name is invalid; there is none by default",
	},
	{
		"nor what", prose,
		re(`what is none|is in order|will not do|has no partner|does for all|do something about`), nil,
		`"invalid", "OK", "handles", "unterminated"`,
		"bad.yaml is in order", "bad.yaml: OK",
	},
	// Filler.
	{
		"somebody", prose, re(`somebody|someone`), nil,
		`name the noun: "a principal", "a caller", "a process"`,
		"somebody has called", "a client has called",
	},
	{
		"whoever", prose, re(`whoever|whomever`), nil, `"the caller that …", "any client that …"`,
		"whoever asks", "any client that asks",
	},
	{
		"whom", prose, re(`whom`), nil,
		`rewrite with the subject first: "the principal that the policy names"`,
		"the principal to whom it belongs", "the principal that owns it",
	},
	{
		"whose", prose, re(`whose`), nil,
		`"with …", "that has …", "the … of which" is no better: start with the noun`,
		"a tool whose schema is invalid", "a tool with an invalid schema",
	},
	{
		"anew", prose, re(`anew`), nil, `"again", "a new …"`,
		"start anew", "start again",
	},
	{
		"besides", prose, re(`besides`), nil, `"also", "in addition to", "except"`,
		"and the cache besides", "and also the cache",
	},
	{
		"by itself", prose, re(`by (?:itself|themselves|himself)`), nil,
		`"automatically", "alone", "without a request"`,
		"it reconnects by itself", "it reconnects automatically",
	},
	{
		"of which", prose, re(`of which`), nil, `start with the noun: "it has 3 …", "one of them"`,
		"a call of which the server knows", "a call that the server knows",
	},
	{
		"is told", prose, re(`(?:is|are|was|were|be|been|being|has been) told`), nil,
		`"receives", "learns", "is notified", "reports", "is called when"`,
		"OnTask is told how a task fares", "OnTask is called when the status of a task changes",
	},
	{
		"is said", prose, re(`(?:is|are|was|were|be|been) said`), nil,
		`"reports", "documents", "is logged"`,
		"it is said what is missing", "farcall reports what is missing",
	},
	{
		"held against", prose, re(`(?:held|holds?|holding) (?:[a-z]+ ){0,3}against`), nil,
		`"validates", "compares with"`,
		"the result is held against the schema", "the result is validated against the schema",
	},
	{
		"of its own", prose, re(`of (?:its|their|his|our|your) own`), nil, `"its own …", "a separate …"`,
		"in a goroutine of its own", "in its own goroutine",
	},
	// People are "they", callers are callers.
	{
		"he", prose, re(`he|him|his|himself`), nil, `"the caller", "the user", "they"`,
		"who he is", "who the caller is",
	},
	// Metaphors in place of terms.
	{
		"lane", every, re(`lanes?`), nil, `"upstream connection"`,
		"the lane is free", "the upstream connection is free",
	},
	{
		"flight", every, re(`flights?`), re(`in[- ]?flight|flight recorders?`), `"in-flight call"`,
		"the flight has ended", "the in-flight call has ended; calls in flight",
	},
	{
		"haunt", every, re(`haunt(?:s|ed)?|ghosts?`), nil, `"late answer", "retired connection"`,
		"a haunted connection", "a retired connection",
	},
	{
		"hush", every, re(`hush(?:es|ed)?`), nil, `"stop", "drain"`,
		"hush the server", "stop the server",
	},
	{
		"party", every, re(`party|parties`), re(`(?:third|relying)[- ]part(?:y|ies)`),
		`"principal", "client", "process"`,
		"the other party", "the client, a third-party library",
	},
	{
		"visit", comment, re(`visitors?|(?:a|the|each|one|first|second|next|per) visits?`),
		re(`(?:ast|packages)\.visitor`), `"round", "request", "client"`,
		"the second visit of a call", "the second round of a call; the user has to visit an address",
	},
	{
		"stray", every, re(`strays?`), nil, `"late answer", "unexpected", "without a session"`,
		"a stray answer", "a late answer",
	},
	{
		"stranger", every, re(`strangers?`), re(`hello, stranger`), `"unauthenticated caller"`,
		"strangers are limited", "unauthenticated callers are limited",
	},
	{
		"guest", comment | identifier, re(`guests?`), nil,
		`"unauthenticated connection", "anonymous principal", "stream"`,
		"the guests of a handler", "the active streams of a handler",
	},
	{
		"toys", every, re(`toys?`), nil, `"playground"`,
		"the toys are served", "the playground is served",
	},
	{
		"patience", every, re(`hurried|hurry|patience|impatient(?:ly)?`), nil,
		`"deadline", "timeout", "retry budget"`,
		"its patience ends", "its timeout expires",
	},
	{
		"greet", comment, re(`greets|greeted|greetings?`), re(`greeting:///`),
		`"handshake", "initialize", "sniff"`,
		"the connection is greeted", "the connection is initialized",
	},
	{
		"landed", every, re(`landed|landing`), re(`landing page`), `"answered", "ended"`,
		"the call has landed", "the call has been answered",
	},
	{
		"board", every, re(`boards?`), nil, `"queue"`,
		"calls on the board", "calls in the queue",
	},
	{
		"late things", prose, re(`late things?`), nil, `"late answers"`,
		"late things are dropped", "late answers are dropped",
	},
	{
		"books", prose, re(`(?:in|into|out of|from|off) the books|keeps? the books`), nil,
		`"table": registers, removes`,
		"takes it out of the books", "removes it from the table",
	},
}
