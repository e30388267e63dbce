// Package add describes the tool that everybody serves.
package add

// Addends and Sum are its types.
type (
	Addends struct {
		A float64 `json:"a"`
		B float64 `json:"b"`
	}
	Sum struct {
		Sum float64 `json:"sum"`
	}
)

// SumSchema is the schema of its result. It says more than the type does, so
// that anyone who validates has to look.
const SumSchema = `{"type":"object","properties":{"sum":{"type":"number","minimum":-1e9,` +
	`"maximum":1e9}},` +
	`"required":["sum"],"additionalProperties":false}`
