package spec

// The values of CreateMessageRequestParams.IncludeContext.
const (
	ContextNone       = "none"
	ContextThisServer = "thisServer"
	ContextAllServers = "allServers"
)

// The values of ToolChoice.Mode.
const (
	ToolChoiceAuto     = "auto"
	ToolChoiceRequired = "required"
	ToolChoiceNone     = "none"
)

// The values of CreateMessageResult.StopReason that the protocol defines.
const (
	StopEndTurn   = "endTurn"
	StopSequence  = "stopSequence"
	StopMaxTokens = "maxTokens"
	StopToolUse   = "toolUse"
)

// CreateMessageRequestParams are the params of sampling/createMessage.
type CreateMessageRequestParams struct {
	Meta             Meta              `json:"_meta,omitzero"`
	Messages         []SamplingMessage `json:"messages"`
	ModelPreferences *ModelPreferences `json:"modelPreferences,omitzero"`
	SystemPrompt     string            `json:"systemPrompt,omitzero"`
	IncludeContext   string            `json:"includeContext,omitzero"`
	Temperature      *float64          `json:"temperature,omitzero"`
	MaxTokens        int64             `json:"maxTokens"`
	StopSequences    []string          `json:"stopSequences,omitzero"`
	Metadata         JSONObject        `json:"metadata,omitzero"`
	Tools            []Tool            `json:"tools,omitzero"`
	ToolChoice       *ToolChoice       `json:"toolChoice,omitzero"`
	Task             *TaskMetadata     `json:"task,omitzero"` // legacy
}

// ModelPreferences say what kind of model is wanted. Priorities are from 0 to 1.
type ModelPreferences struct {
	Hints                []ModelHint `json:"hints,omitzero"`
	CostPriority         *float64    `json:"costPriority,omitzero"`
	SpeedPriority        *float64    `json:"speedPriority,omitzero"`
	IntelligencePriority *float64    `json:"intelligencePriority,omitzero"`
}

// ModelHint is a part of a model's name.
type ModelHint struct {
	Name string `json:"name,omitzero"`
}

// ToolChoice says whether the model may, must or must not use tools.
type ToolChoice struct {
	Mode string `json:"mode,omitzero"`
}

// SamplingMessage is one message of a conversation with a model.
type SamplingMessage struct {
	Role    string
	Content []Content // one block is written without an array, unless it came in one
	Meta    Meta

	array bool // the content came in an array
}

// CreateMessageResult is the message with which a model answers.
type CreateMessageResult struct {
	Meta       Meta
	Role       string
	Content    []Content // as in SamplingMessage
	Model      string
	StopReason string

	array bool
}

// MarshalJSON returns the message as JSON.
func (m SamplingMessage) MarshalJSON() ([]byte, error) {
	var w writer
	w.open()
	w.text("role", m.Role)
	w.oneOrMore("content", m.Content, m.array)
	w.meta(m.Meta)
	w.close()
	return w.bytes()
}

// UnmarshalJSON stores the message b and does not keep b.
func (m *SamplingMessage) UnmarshalJSON(b []byte) error {
	*m = SamplingMessage{}
	return members("message", b, []place{
		{"role", &m.Role}, {"content", &oneOrMore{&m.Content, &m.array}}, {"_meta", &m.Meta},
	})
}

// MarshalJSON returns the result as JSON.
func (r CreateMessageResult) MarshalJSON() ([]byte, error) {
	var w writer
	w.open()
	w.text("role", r.Role)
	w.oneOrMore("content", r.Content, r.array)
	w.text("model", r.Model)
	w.textIf("stopReason", r.StopReason)
	w.meta(r.Meta)
	w.close()
	return w.bytes()
}

// UnmarshalJSON stores the result b and does not keep b.
func (r *CreateMessageResult) UnmarshalJSON(b []byte) error {
	*r = CreateMessageResult{}
	return members("sampling result", b, []place{
		{"role", &r.Role},
		{"content", &oneOrMore{&r.Content, &r.array}},
		{"model", &r.Model},
		{"stopReason", &r.StopReason},
		{"_meta", &r.Meta},
	})
}

func (w *writer) oneOrMore(name string, list []Content, array bool) {
	if len(list) != 1 || array {
		w.blocks(name, list)
		return
	}
	w.name(name)
	list[0].write(w)
}

// oneOrMore is where a block goes, or an array of them.
type oneOrMore struct {
	into  *[]Content
	array *bool
}

func (o *oneOrMore) read(value []byte) error {
	if value[0] == '{' {
		*o.into = make([]Content, 1)
		return (*o.into)[0].read(value, "")
	}
	*o.array = true
	return readBlocks(o.into, value, "")
}
