package mcp_test

import (
	"context"
	"fmt"
	"log"
	"strings"

	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// Branches of the repository that the user has chosen before.
func ExampleServer_CompletePrompt() {
	branches := map[string][]string{"api": {"main", "metrics"}, "web": {"main", "menu", "next"}}
	s := mcp.NewServer("reviews", "1.0.0", nil)
	s.AddPrompt(mcp.Prompt{
		Name: "review", Arguments: []spec.PromptArgument{{Name: "repository"}, {Name: "branch"}},
	},
		func(_ context.Context, args map[string]string) (*mcp.PromptResult, error) {
			text := mcp.Text("Review " + args["branch"] + " of " + args["repository"])
			return &mcp.PromptResult{Messages: []mcp.PromptMessage{{Role: "user", Content: text}}}, nil
		})
	s.CompletePrompt("review", "branch",
		func(_ context.Context, value string, others map[string]string) ([]string, error) {
			var matching []string
			for _, branch := range branches[others["repository"]] {
				if strings.HasPrefix(branch, value) {
					matching = append(matching, branch)
				}
			}
			return matching, nil
		})

	client, hangUp := connect(s, nil)
	defer hangUp()
	r, err := client.Complete(context.Background(), &spec.CompleteRequestParams{
		Ref:      spec.CompleteReference{Type: spec.RefPrompt, Name: "review"},
		Argument: spec.CompleteArgument{Name: "branch", Value: "me"},
		Context:  &spec.CompleteContext{Arguments: map[string]string{"repository": "web"}},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.Completion.Values)
	// Output: [menu]
}
