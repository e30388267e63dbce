package spec

// The types of a CompleteReference.
const (
	RefPrompt   = "ref/prompt"
	RefResource = "ref/resource"
)

// CompleteRequestParams are the params of completion/complete.
type CompleteRequestParams struct {
	Meta     Meta              `json:"_meta,omitzero"`
	Ref      CompleteReference `json:"ref"`
	Argument CompleteArgument  `json:"argument"`
	Context  *CompleteContext  `json:"context,omitzero"`
}

// CompleteReference says what is completed: a prompt by its name, or a resource
// template by its URI.
type CompleteReference struct {
	Type  string `json:"type"`
	Name  string `json:"name,omitzero"`  // of RefPrompt
	Title string `json:"title,omitzero"` // of RefPrompt
	URI   string `json:"uri,omitzero"`   // of RefResource
}

// CompleteArgument is the argument that is being written.
type CompleteArgument struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// CompleteContext has the arguments that are already known.
type CompleteContext struct {
	Arguments map[string]string `json:"arguments,omitzero"`
}

// CompleteResult is the result of completion/complete.
type CompleteResult struct {
	Meta       Meta       `json:"_meta,omitzero"`
	ResultType string     `json:"resultType,omitzero"`
	Completion Completion `json:"completion"`
}

// MaxCompletions is how many values a Completion may have.
const MaxCompletions = 100

// Completion is what an argument may become.
type Completion struct {
	Values  []string `json:"values"`
	Total   *int64   `json:"total,omitzero"`
	HasMore bool     `json:"hasMore,omitzero"`
}
