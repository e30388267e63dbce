// Package scan answers one question: is this valid JSON, and where are its
// parts?
//
// It is pure functions over bytes: nothing is converted, nothing is allocated
// and no function recurses. What they check is RFC 8259's grammar, that strings
// are UTF-8 without raw control characters, and the nesting depth. An escaped
// surrogate without its partner is grammatical (RFC 8259 §8.2) and accepted.
package scan

// Fault says what is wrong with a text. The zero value is no fault.
type Fault uint8

// The faults. Each comes with the offset at which the text stops being JSON.
const (
	OK        Fault = iota
	End             // the text ends too early
	NoValue         // no value where one must be
	NoKey           // no member name where one must be
	NoColon         // no colon after a member name
	NoComma         // neither a comma nor the end of the object or array
	BadNumber       // RFC 8259 §6
	BadEscape       // RFC 8259 §7
	Control         // a raw control character in a string
	BadUTF8         // bytes that are not UTF-8 in a string
	TooDeep         // more containers inside each other than allowed
	Trailing        // something after the value
	Mark            // a byte order mark (RFC 8259 §8.1)
)

var texts = [...]string{
	OK:        "valid",
	End:       "unexpected end",
	NoValue:   "expected a value",
	NoKey:     "expected a member name in quotes",
	NoColon:   "expected a colon",
	NoComma:   "expected a comma or the closing bracket",
	BadNumber: "malformed number",
	BadEscape: "malformed escape in a string",
	Control:   "raw control character in a string",
	BadUTF8:   "invalid UTF-8 in a string",
	TooDeep:   "nested too deeply",
	Trailing:  "unexpected data after the value",
	Mark:      "byte order mark",
}

func (f Fault) String() string { return texts[f] }
