package capture

// The types of records.
const (
	typeHead  = "capture"
	typeConn  = "conn"
	typeFrame = "frame"
	typeCall  = "call"
	typeEvent = "event"
	typeDrop  = "drop"
	typeEnd   = "end"
)

// The directions and kinds of frames.
const (
	dirUp   = "up"
	dirDown = "down"

	kindRequest      = "request"
	kindNotification = "notification"
	kindResponse     = "response"
	kindBatch        = "batch"
	kindBad          = "bad"
)
