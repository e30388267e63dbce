package spec

import "github.com/farcall-dev/farcall/jsonrpc"

// NotificationParams are the params of a notification without other params.
type NotificationParams struct {
	Meta Meta `json:"_meta,omitzero"`
}

// CancelledNotificationParams says that an answer is wanted no more.
type CancelledNotificationParams struct {
	Meta      Meta       `json:"_meta,omitzero"`
	RequestID jsonrpc.ID `json:"requestId,omitzero"`
	Reason    string     `json:"reason,omitzero"`
}

// ProgressNotificationParams says how far a request has come.
type ProgressNotificationParams struct {
	Meta          Meta        `json:"_meta,omitzero"`
	ProgressToken jsonrpc.Raw `json:"progressToken"` // a string or an integer
	Progress      float64     `json:"progress"`
	Total         *float64    `json:"total,omitzero"`
	Message       string      `json:"message,omitzero"`
}

// LoggingMessageNotificationParams is a message of a server's log. Data may be
// any value.
type LoggingMessageNotificationParams struct {
	Meta   Meta        `json:"_meta,omitzero"`
	Level  string      `json:"level"`
	Logger string      `json:"logger,omitzero"`
	Data   jsonrpc.Raw `json:"data"`
}

// ResourceUpdatedNotificationParams says that a resource has changed.
type ResourceUpdatedNotificationParams struct {
	Meta Meta   `json:"_meta,omitzero"`
	URI  string `json:"uri"`
}
