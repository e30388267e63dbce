package spec

import "github.com/farcall-dev/farcall/jsonrpc"

// The modes of an elicitation. No mode is the form.
const (
	ElicitForm = "form"
	ElicitURL  = "url"
)

// The actions of an ElicitResult.
const (
	ElicitAccept  = "accept"
	ElicitDecline = "decline"
	ElicitCancel  = "cancel"
)

// ElicitRequestParams are the params of elicitation/create: a form to fill in, or
// a URL to visit.
type ElicitRequestParams struct {
	Meta            Meta          `json:"_meta,omitzero"`
	Mode            string        `json:"mode,omitzero"`
	Message         string        `json:"message"`
	RequestedSchema jsonrpc.Raw   `json:"requestedSchema,omitzero"` // of the form: an ElicitSchema
	URL             string        `json:"url,omitzero"`             // of the url
	ElicitationID   string        `json:"elicitationId,omitzero"`   // of the url; legacy
	Task            *TaskMetadata `json:"task,omitzero"`            // legacy
}

// ElicitResult is what the user did. Content is what a form was filled in with.
type ElicitResult struct {
	Meta    Meta        `json:"_meta,omitzero"`
	Action  string      `json:"action"`
	Content jsonrpc.Raw `json:"content,omitzero"`
}

// ElicitationCompleteNotificationParams says that what was to be done at a URL
// has been done. Legacy.
type ElicitationCompleteNotificationParams struct {
	Meta          Meta   `json:"_meta,omitzero"`
	ElicitationID string `json:"elicitationId"`
}

// ElicitSchema is the schema of a form: an object, and flat.
type ElicitSchema struct {
	Schema     string                               `json:"$schema,omitzero"`
	Type       string                               `json:"type"` // "object"
	Properties map[string]PrimitiveSchemaDefinition `json:"properties"`
	Required   []string                             `json:"required,omitzero"`
}

// PrimitiveSchemaDefinition is the schema of one field of a form: a string, a
// number, a boolean, one of some values, or several of them.
type PrimitiveSchemaDefinition struct {
	Type        string      `json:"type"` // string, number, integer, boolean; array: several of some values
	Title       string      `json:"title,omitzero"`
	Description string      `json:"description,omitzero"`
	Default     jsonrpc.Raw `json:"default,omitzero"`

	MinLength *int64 `json:"minLength,omitzero"`
	MaxLength *int64 `json:"maxLength,omitzero"`
	Format    string `json:"format,omitzero"` // email, uri, date or date-time

	Minimum *float64 `json:"minimum,omitzero"`
	Maximum *float64 `json:"maximum,omitzero"`

	Enum      []string     `json:"enum,omitzero"`
	EnumNames []string     `json:"enumNames,omitzero"` // legacy titles of Enum
	OneOf     []EnumOption `json:"oneOf,omitzero"`     // values with titles

	Items    *EnumItems `json:"items,omitzero"` // of an array
	MinItems *int64     `json:"minItems,omitzero"`
	MaxItems *int64     `json:"maxItems,omitzero"`
}

// EnumOption is a value with its title.
type EnumOption struct {
	Const string `json:"const"`
	Title string `json:"title"`
}

// EnumItems are the values that may be chosen from, with titles or without.
type EnumItems struct {
	Type  string       `json:"type,omitzero"` // "string", with Enum
	Enum  []string     `json:"enum,omitzero"`
	AnyOf []EnumOption `json:"anyOf,omitzero"`
}
