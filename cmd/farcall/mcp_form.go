package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/mail"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// form is what a server asks its user to fill in, field by field, in the order
// in which the server has them.
type form []field

type field struct {
	spec.PrimitiveSchemaDefinition
	name     string
	required bool
	choices  []spec.EnumOption // nil: anything of the type
	several  bool              // of the choices
}

// newForm reads the schema of a form.
func newForm(schema jsonrpc.Raw) (form, error) {
	var s spec.ElicitSchema
	if err := jsonv2.Unmarshal(schema, &s); err != nil {
		return nil, fmt.Errorf("the server's form is not valid: %w", err)
	}
	var f form
	for name := range members(member(schema, "properties")) {
		p := field{
			PrimitiveSchemaDefinition: s.Properties[name], name: name,
			required: slices.Contains(s.Required, name),
		}
		p.choices = p.OneOf
		for i, value := range p.Enum {
			title := value
			if i < len(p.EnumNames) {
				title = p.EnumNames[i]
			}
			p.choices = append(p.choices, spec.EnumOption{Const: value, Title: title})
		}
		if p.Items != nil {
			p.several, p.choices = true, p.Items.AnyOf
			for _, value := range p.Items.Enum {
				p.choices = append(p.choices, spec.EnumOption{Const: value, Title: value})
			}
		}
		f = append(f, p)
	}
	return f, nil
}

// check holds the content of a form against it.
func (f form) check(content jsonrpc.Raw) (jsonrpc.Raw, error) {
	if content == nil {
		content = jsonrpc.Raw("{}")
	}
	given := maps.Collect(members(content))
	for i := range f {
		p := &f[i]
		value, ok := given[p.name]
		delete(given, p.name)
		switch {
		case ok:
			if err := p.fits(value); err != nil {
				return nil, fmt.Errorf("%s: %w", tame(p.name), err)
			}
		case p.required && p.Default == nil:
			return nil, fmt.Errorf("%s: an answer is needed", tame(p.name))
		}
	}
	for name := range given {
		return nil, fmt.Errorf("the form has no field %q", name)
	}
	return content, nil
}

// example is a content for the form.
func (f form) example() string {
	raw := jsonrpc.Raw{'{'}
	for i := range f {
		if p := &f[i]; p.required || i == 0 {
			raw = p.append(raw, p.example())
		}
	}
	return string(appendTame(nil, append(raw, '}')))
}

func (p *field) append(raw, value jsonrpc.Raw) jsonrpc.Raw {
	return appendMember(raw, p.name, value)
}

func (p *field) example() jsonrpc.Raw {
	switch {
	case p.Default != nil:
		return p.Default
	case p.several:
		return jsonrpc.Raw("[]")
	case len(p.choices) > 0:
		return jsonrpc.AppendString(nil, p.choices[0].Const)
	case p.Type == "boolean":
		return jsonrpc.Raw("true")
	case p.Type == "number", p.Type == "integer":
		return jsonrpc.Raw("1")
	}
	return jsonrpc.Raw(`"…"`)
}

// describe says what belongs into the field.
func (p *field) describe() string {
	var b strings.Builder
	title := cmp.Or(p.Title, p.name)
	b.WriteString(tame(title))
	if p.Description != "" {
		b.WriteString(": " + tame(p.Description))
	}
	b.WriteString(" (" + p.rule())
	if !p.required {
		b.WriteString(", may be left out")
	}
	b.WriteByte(')')
	for i, c := range p.choices {
		fmt.Fprintf(&b, "\n  %d %s", i+1, tame(c.Title))
		if c.Title != c.Const {
			b.WriteString(" (" + tame(c.Const) + ")")
		}
	}
	return b.String()
}

// rule is the type of the field, with its bounds.
func (p *field) rule() string {
	kind := p.Type
	switch {
	case p.several:
		return "some of these, with commas between them" + span(p.MinItems, p.MaxItems, "%d")
	case len(p.choices) > 0:
		return "one of these"
	case kind == "boolean":
		return "yes or no"
	case kind == "string":
		kind = "text" + span(p.MinLength, p.MaxLength, "%d")
		if p.MinLength != nil || p.MaxLength != nil {
			kind += " characters"
		}
		if p.Format != "" {
			kind += ", " + tame(p.Format)
		}
		return kind
	}
	return tame(kind) + span(p.Minimum, p.Maximum, "%g")
}

// span is a range in words.
func span[N int64 | float64](low, high *N, verb string) string {
	switch {
	case low != nil && high != nil:
		return fmt.Sprintf(", "+verb+" to "+verb, *low, *high)
	case low != nil:
		return fmt.Sprintf(", at least "+verb, *low)
	case high != nil:
		return fmt.Sprintf(", at most "+verb, *high)
	}
	return ""
}

func (p *field) prompt() string {
	text := tame(p.name)
	if p.Default != nil {
		usual := jsonText(p.Default)
		if p.Type == "boolean" {
			usual = strings.NewReplacer("true", "yes", "false", "no").Replace(usual)
		}
		text += " [" + usual + "]"
	}
	return text + "> "
}

// parse reads what was typed. The error is for who typed it.
func (p *field) parse(text string) (jsonrpc.Raw, error) {
	var value jsonrpc.Raw
	switch {
	case p.several:
		value = jsonrpc.Raw{'['}
		for word := range strings.SplitSeq(text, ",") {
			if word = strings.TrimSpace(word); word == "" {
				continue
			}
			if len(value) > 1 {
				value = append(value, ',')
			}
			value = jsonrpc.AppendString(value, p.choose(word))
		}
		value = append(value, ']')
	case len(p.choices) > 0:
		value = jsonrpc.AppendString(nil, p.choose(text))
	case p.Type == "boolean":
		switch strings.ToLower(text) {
		case "y", "yes", "true":
			value = jsonrpc.Raw("true")
		case "n", "no", "false":
			value = jsonrpc.Raw("false")
		default:
			return nil, errors.New("yes or no?")
		}
	case p.Type == "number", p.Type == "integer":
		value = jsonrpc.Raw(text)
		if jsonrpc.Valid(value) != nil {
			return nil, fmt.Errorf("%q is no number", tame(text))
		}
	case text == "":
		return nil, errors.New("an answer is needed")
	default:
		value = jsonrpc.AppendString(nil, text)
	}
	return value, p.fits(value)
}

// choose finds the choice that is meant by its number, its value or its title.
func (p *field) choose(text string) string {
	for i, c := range p.choices {
		if text == c.Const || strings.EqualFold(text, c.Title) || text == strconv.Itoa(i+1) {
			return c.Const
		}
	}
	return text
}

// fits checks a value against the field. The error is for the user.
func (p *field) fits(value jsonrpc.Raw) error {
	switch {
	case p.several:
		var chosen []string
		if jsonv2.Unmarshal(value, &chosen) != nil {
			return errors.New("it must be an array of strings")
		}
		for _, c := range chosen {
			if err := p.known(c); err != nil {
				return err
			}
		}
		return between(int64(len(chosen)), p.MinItems, p.MaxItems, "choose %d")
	case p.Type == "boolean":
		if s := string(value); s != "true" && s != "false" {
			return errors.New("it must be true or false")
		}
	case p.Type == "number", p.Type == "integer":
		return p.fitsNumber(value)
	default:
		return p.fitsText(value)
	}
	return nil
}

func (p *field) fitsNumber(value jsonrpc.Raw) error {
	n, err := strconv.ParseFloat(string(value), 64)
	switch {
	case err != nil:
		return fmt.Errorf("%s is no number", excerpt(value))
	case p.Type == "integer" && n != float64(int64(n)):
		return fmt.Errorf("%s is no whole number", excerpt(value))
	}
	return between(n, p.Minimum, p.Maximum, "it must be %g")
}

func (p *field) fitsText(value jsonrpc.Raw) error {
	text, ok := unquote(value)
	if !ok {
		return errors.New("it must be a string")
	}
	if len(p.choices) > 0 {
		return p.known(text)
	}
	if err := between(int64(utf8.RuneCountInString(text)), p.MinLength, p.MaxLength,
		"it must have %d characters"); err != nil {
		return err
	}
	var err error
	switch p.Format {
	case "email":
		var a *mail.Address
		if a, err = mail.ParseAddress(text); err == nil && a.Address != text {
			err = errors.New("it has more than the address")
		}
	case "uri":
		var u *url.URL
		if u, err = url.Parse(text); err == nil && u.Scheme == "" {
			err = errors.New("it has no scheme")
		}
	case "date":
		_, err = time.Parse(time.DateOnly, text)
	case "date-time":
		_, err = time.Parse(time.RFC3339, text)
	}
	if err != nil {
		example := map[string]string{
			"email": "ada@example.com", "uri": "https://example.com/",
			"date": "1815-12-10", "date-time": "1815-12-10T07:00:00Z",
		}
		return fmt.Errorf("%q is no %s, such as %s", tame(text), p.Format, example[p.Format])
	}
	return nil
}

func (p *field) known(choice string) error {
	if slices.ContainsFunc(p.choices, func(c spec.EnumOption) bool { return c.Const == choice }) ||
		len(p.choices) == 0 {
		return nil
	}
	var all []string
	for _, c := range p.choices {
		all = append(all, tame(c.Const))
	}
	return fmt.Errorf("%q is none of %s", tame(choice), strings.Join(all, ", "))
}

// between complains of a number that is out of its bounds.
func between[N int64 | float64](n N, low, high *N, format string) error {
	switch {
	case low != nil && n < *low:
		return fmt.Errorf(strings.Replace(format, "%", "at least %", 1), *low)
	case high != nil && n > *high:
		return fmt.Errorf(strings.Replace(format, "%", "at most %", 1), *high)
	}
	return nil
}
