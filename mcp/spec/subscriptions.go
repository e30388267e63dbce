package spec

// SubscriptionFilter says which notifications a client wants, or gets.
type SubscriptionFilter struct {
	ToolsListChanged      bool     `json:"toolsListChanged,omitzero"`
	PromptsListChanged    bool     `json:"promptsListChanged,omitzero"`
	ResourcesListChanged  bool     `json:"resourcesListChanged,omitzero"`
	ResourceSubscriptions []string `json:"resourceSubscriptions,omitzero"` // URIs
	TaskIDs               []string `json:"taskIds,omitzero"`               // of the tasks extension
}

// SubscriptionsListenRequestParams are the params of subscriptions/listen.
type SubscriptionsListenRequestParams struct {
	Meta          Meta               `json:"_meta,omitzero"`
	Notifications SubscriptionFilter `json:"notifications"`
}

// SubscriptionsListenResult ends a subscription in order. Its Meta has
// MetaSubscriptionID.
type SubscriptionsListenResult struct {
	Meta       Meta   `json:"_meta"`
	ResultType string `json:"resultType,omitzero"`
}

// SubscriptionsAcknowledgedNotificationParams says what of the filter the server
// agrees to send. It is the first notification of a subscription.
type SubscriptionsAcknowledgedNotificationParams struct {
	Meta          Meta               `json:"_meta,omitzero"`
	Notifications SubscriptionFilter `json:"notifications"`
}
