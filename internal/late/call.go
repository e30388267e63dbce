package late

// A Call is a call under way that may be given up, without a context that
// has to be made for it.
type Call interface {
	// GiveUp ends the call, as the end of its context does, but with that reason.
	// It does nothing when the call has ended.
	GiveUp(reason error)
}

// A Limit bounds calls. It is the value of a LimitKey in their contexts.
type Limit interface {
	// Began receives the call before it is sent.
	Began(c Call)
}

// A LimitKey finds a Limit.
type LimitKey struct{}
