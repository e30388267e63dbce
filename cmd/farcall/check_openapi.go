package main

import (
	"fmt"
	"strings"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/internal/jsonv2"
)

// checkAPI is what became of the operations of an HTTP API.
type checkAPI struct {
	Tools    []checkOperation `json:"tools"`
	Tokens   int              `json:"tokens"` // that a model takes for all of them, about
	Problems []string         `json:"problems,omitempty"`
}

type checkOperation struct {
	Name      string `json:"name"`
	Operation string `json:"operation"`
	Tokens    int    `json:"tokens"`
	Renamed   string `json:"renamed,omitempty"` // why the name is not that of the document
}

// describeAPI returns nil where the document is at an address, or cannot be read any more.
func describeAPI(u *gateway.Upstream) *checkAPI {
	tools, problems, err := u.Operations()
	if tools == nil || err != nil {
		return nil
	}
	d := &checkAPI{Tools: []checkOperation{}, Problems: problems}
	for _, t := range tools {
		text, _ := jsonv2.Append(nil, t.Tool)
		o := checkOperation{Name: t.Name, Operation: t.Operation, Tokens: len(text) / 4, Renamed: t.Renamed}
		d.Tokens += o.Tokens
		d.Tools = append(d.Tools, o)
	}
	return d
}

func (e *env) explainAPI(name string, d *checkAPI) error {
	rows := [][]string{}
	for _, t := range d.Tools {
		row := []string{"  " + t.Name, fmt.Sprintf("%d tokens", t.Tokens), t.Operation}
		if t.Renamed != "" {
			row = append(row, "renamed: "+t.Renamed)
		}
		for i := range row {
			row[i] = tame(row[i])
		}
		rows = append(rows, row)
	}
	heading := fmt.Sprintf("Tools of %s: %d, about %d tokens for a model", name, len(d.Tools), d.Tokens)
	if err := e.section(heading, rows); err != nil {
		return err
	}
	rows = nil
	for _, p := range d.Problems {
		rows = append(rows, []string{"  " + tame(p)})
	}
	return e.section("Left out of "+name+", or changed", rows)
}

// article puts "a" or "an" before a kind of upstream.
func article(kind string) string {
	if strings.HasPrefix(kind, "HTTP") {
		return "an " + kind
	}
	return "a " + kind
}
