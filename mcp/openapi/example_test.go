package openapi_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/openapi"
)

const petStore = `
openapi: 3.1.0
info: {title: Pet store, version: 1.0.0}
servers: [{url: https://pets.example.com/v1}]
paths:
  /pets/{id}:
    parameters:
    - {in: path, name: id, required: true, schema: {type: integer}}
    get:
      operationId: getPet
      summary: Look a pet up
    delete:
      operationId: removePet
      deprecated: true
`

// servePets serves the operations of a document as tools, at /mcp.
func servePets(ctx context.Context, addr, key string) error {
	api, err := openapi.New([]byte(petStore), &openapi.Options{
		BaseURL: "https://pets.example.com/v1",
		Header:  http.Header{"Authorization": {"Bearer " + key}}, // to that origin only
		Allow:   []string{"GET /pets/**"},
	})
	if err != nil {
		return err
	}
	s := mcp.NewServer("pets", "1.0.0", nil)
	api.AddTo(s)
	return s.ListenAndServe(ctx, addr)
}

func ExampleNew() {
	store := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"name":"Rex","path":"`+r.URL.Path+`"}`)
	}))
	defer store.Close()

	api, err := openapi.New([]byte(petStore), &openapi.Options{BaseURL: store.URL + "/v1"})
	if err != nil {
		log.Fatal(err)
	}
	for _, t := range api.Tools() {
		fmt.Println(t.Name, "is", t.Operation, string(t.InputSchema))
	}
	for _, p := range api.Problems() {
		fmt.Println(p)
	}

	s := mcp.NewServer("pets", "1.0.0", nil)
	api.AddTo(s)
	a, b := farcall.Pipe()
	done := make(chan error)
	go func() { done <- s.Serve(context.Background(), b) }()
	client, err := mcp.Connect(context.Background(), a, nil)
	if err != nil {
		log.Fatal(err)
	}
	type pet struct {
		Name string `json:"name"`
		Path string `json:"path"`
	}
	rex, err := mcp.CallTool[pet](context.Background(), client, "getPet", map[string]int{"id": 7})
	fmt.Println(rex, err)
	client.Close()
	<-done
	// Output:
	// getPet is GET /pets/{id} {"type":"object","properties":{"id":{"type":"integer"}},"required":["id"],"additionalProperties":false}
	// DELETE /pets/{id}: no tool: it is deprecated; name it in Allow to have it
	// {Rex /v1/pets/7} <nil>
}

var _ = servePets // the code of docs/openapi.md
