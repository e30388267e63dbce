package mcp

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// paramHeader is an argument that a client repeats in a header, so that what is
// between the two can route by it (2026-07-28, server/tools, "x-mcp-header").
type paramHeader struct {
	header string   // Mcp-Param-…, as http.Header has it
	path   []string // to the argument, from the root of the arguments
	typ    string   // "integer", "string" or "boolean"
}

const (
	headerKeyword    = "x-mcp-header"
	paramHeaderStart = "Mcp-Param-"
)

// paramHeaders finds the annotations in an input schema. One that breaks the
// rules is an error: clients would not show the tool.
func paramHeaders(schema jsonrpc.Raw) ([]paramHeader, error) {
	found := bytes.Count(schema, []byte(`"`+headerKeyword+`"`))
	if found == 0 {
		return nil, nil
	}
	var all []paramHeader
	if err := collectHeaders(schema, nil, &all); err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, h := range all {
		if names[h.header] {
			return nil, fmt.Errorf("two arguments have the %s %q", headerKeyword, strings.TrimPrefix(h.header, paramHeaderStart))
		}
		names[h.header] = true
	}
	if len(all) != found {
		return nil, errors.New(headerKeyword + " may only be in a property that is reached from the root by properties alone")
	}
	return all, nil
}

// collectHeaders reads the properties of an object schema.
func collectHeaders(schema []byte, path []string, all *[]paramHeader) (err error) {
	each(schema, "properties", func(properties []byte) {
		scan.Object(properties, func(key, property []byte) bool {
			at := append(slices.Clip(path), string(key))
			each(property, headerKeyword, func(name []byte) {
				var h paramHeader
				if h, err = newParamHeader(name, property, at); err == nil {
					*all = append(*all, h)
				}
			})
			if err == nil {
				err = collectHeaders(property, at, all)
			}
			return err == nil
		})
	})
	return err
}

// each calls f with the value of a member, if the object has it.
func each(object []byte, name string, f func(value []byte)) {
	scan.Object(object, func(key, value []byte) bool {
		if string(key) == name {
			f(value)
			return false
		}
		return true
	})
}

func newParamHeader(name, property []byte, path []string) (paramHeader, error) {
	h := paramHeader{path: path}
	var token string
	if jsonv2.Unmarshal(name, &token) != nil || !isToken(token) {
		return h, fmt.Errorf("the %s of %s is %s; it must be the name of a header: letters, digits and -", headerKeyword, strings.Join(path, "."), name)
	}
	h.header = http.CanonicalHeaderKey(paramHeaderStart + token)
	each(property, "type", func(value []byte) { _ = jsonv2.Unmarshal(value, &h.typ) })
	switch h.typ {
	case "integer", "string", "boolean":
		return h, nil
	default:
		return h, fmt.Errorf("%s has an %s; its type must be integer, string or boolean", strings.Join(path, "."), headerKeyword)
	}
}

// isToken reports whether s is a token of RFC 9110 §5.6.2.
func isToken(s string) bool {
	return s != "" && strings.IndexFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	}) < 0
}

// checkParamHeaders compares the headers of an HTTP request with the arguments
// (2026-07-28, basic/transports/streamable-http, "Server Behavior for Custom
// Headers").
func (c *call) checkParamHeaders(t *tool) error {
	if !c.rev.Modern {
		return nil
	}
	r := mcphttp.RequestFrom(c)
	if r == nil {
		return nil
	}
	for i := range t.headers {
		h := &t.headers[i]
		if err := h.check(r.Header.Values(h.header), h.argument(c.in.arguments)); err != nil {
			return &jsonrpc.Error{
				Code:    spec.HeaderMismatch,
				Message: fmt.Sprintf("Header mismatch: %s: %v; see the input schema of the tool %s in tools/list", h.header, err, t.spec.Name),
			}
		}
	}
	return nil
}

// argument returns the argument's value, nil when it is absent or null.
func (h *paramHeader) argument(arguments jsonrpc.Raw) jsonrpc.Raw {
	value := arguments
	for _, name := range h.path {
		inner := jsonrpc.Raw(nil)
		each(value, name, func(v []byte) { inner = v })
		value = inner
	}
	if string(value) == "null" {
		return nil
	}
	return value
}

func (h *paramHeader) check(values []string, argument jsonrpc.Raw) error {
	switch {
	case argument == nil && len(values) == 0:
		return nil
	case argument == nil:
		return errors.New("the argument is not in the body")
	case len(values) != 1:
		return fmt.Errorf("the argument is in the body, but the header is there %d times", len(values))
	}
	value, err := headerValue(values[0])
	if err != nil {
		return err
	}
	if h.same(value, argument) {
		return nil
	}
	return errors.New("the header does not have the value of the argument in the body")
}

// headerValue undoes the encoding of values that a header cannot have.
func headerValue(s string) (string, error) {
	for i := range len(s) {
		if (s[i] < ' ' && s[i] != '\t') || s[i] > '~' {
			return "", errors.New("the value has characters that a header must not have; encode it as =?base64?…?=")
		}
	}
	inner, prefix := strings.CutPrefix(s, "=?base64?")
	inner, suffix := strings.CutSuffix(inner, "?=")
	if !prefix || !suffix {
		return s, nil
	}
	b, err := base64.StdEncoding.DecodeString(inner)
	if err != nil {
		return "", errors.New("the value between =?base64? and ?= is not base64")
	}
	return string(b), nil
}

func (h *paramHeader) same(header string, argument jsonrpc.Raw) bool {
	switch {
	case argument[0] == '"':
		return header == string(scan.Unquote(argument))
	case h.typ == "integer":
		// SHOULD be compared as numbers; both are exact where they are allowed.
		a, errA := strconv.ParseFloat(header, 64)
		b, errB := strconv.ParseFloat(string(argument), 64)
		return errA == nil && errB == nil && a == b && math.Abs(a) < 1<<53 || header == string(argument)
	default:
		return header == string(argument)
	}
}
