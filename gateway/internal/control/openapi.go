package control

import (
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/schema"
)

type object = map[string]any

// describe makes the OpenAPI document of the routes. It panics when a type of the table has no
// schema, which a test finds.
func describe() []byte {
	set := schema.NewSet("#/components/schemas/")
	paths := object{}
	for _, t := range routes {
		at, _ := paths[pathOf(t)].(object)
		if at == nil {
			at = object{}
			paths[pathOf(t)] = at
		}
		at[strings.ToLower(t.method)] = t.operation(set)
	}
	problem := of(set, reflect.TypeFor[Problem]())
	doc := object{
		"openapi": "3.1.0",
		"info": object{
			"title": "farcall gateway", "version": "1",
			"description": "What an operator can read and change of a gateway. Reads need a rule of the guard that allows gateway/status, changes one that allows " +
				"gateway/admin CHANGE or gateway/admin UPSTREAM/CHANGE. Without a guard the API is for programs on the machine of the gateway.",
		},
		"servers":  []any{object{"url": base}},
		"security": []any{object{}, object{"bearer": []string{}}},
		"paths":    paths,
		"components": object{
			"schemas":         set.Definitions(),
			"securitySchemes": object{"bearer": object{"type": "http", "scheme": "bearer"}},
			"responses": object{"problem": object{
				"description": "what is wrong and what to do (RFC 9457)", "content": object{"application/problem+json": object{"schema": problem}},
			}},
		},
	}
	text, err := jsonv2.Append(nil, doc)
	if err != nil {
		panic(fmt.Sprintf("control: the OpenAPI document cannot be written: %v", err)) //nolint:forbidigo // a broken table
	}
	return text
}

func pathOf(t *route) string {
	if t.path == "" {
		return "/"
	}
	return t.path
}

func of(set *schema.Set, t reflect.Type) *schema.Schema {
	s, err := set.Of(t)
	if err != nil {
		panic(fmt.Sprintf("control: %v has no schema: %v", t, err)) //nolint:forbidigo // a broken table
	}
	return s
}

// operation describes a route.
func (t *route) operation(set *schema.Set) object {
	op := object{"operationId": t.id, "summary": t.summary, "tags": []string{"read"}}
	if t.about != "" {
		op["description"] = t.about
	}
	if t.changes() {
		op["tags"] = []string{"change"}
		permission := "gateway/admin " + t.change
		if t.ofUpstream() {
			permission = "gateway/admin UPSTREAM/" + t.change
		}
		op["x-farcall-permission"] = permission
	}
	if params := t.parameters(set); len(params) > 0 {
		op["parameters"] = params
	}
	if t.in != nil {
		op["requestBody"] = object{"content": object{"application/json": object{"schema": of(set, t.in)}}}
	}
	op["responses"] = object{
		strconv.Itoa(http.StatusOK): object{"description": t.summary, "content": object{"application/json": object{"schema": of(set, t.out)}}},
		"default":                   object{"$ref": "#/components/responses/problem"},
	}
	return op
}

// parameters are those of the path and of the query.
func (t *route) parameters(set *schema.Set) (all []any) {
	for part := range strings.SplitSeq(t.path, "/") {
		if name, ok := strings.CutPrefix(part, "{"); ok {
			all = append(all, object{"name": strings.TrimSuffix(name, "}"), "in": "path", "required": true, "schema": object{"type": "string"}})
		}
	}
	if t.query == nil {
		return all
	}
	fields, err := schema.Fields(t.query)
	if err != nil {
		panic(fmt.Sprintf("control: %v: %v", t.query, err)) //nolint:forbidigo // a broken table
	}
	for _, f := range fields {
		s, err := set.Member(f)
		if err != nil {
			panic(fmt.Sprintf("control: %v: %v", t.query, err)) //nolint:forbidigo // a broken table
		}
		all = append(all, object{"name": f.Name, "in": "query", "required": !f.Optional, "schema": s})
	}
	return all
}
