package gateway_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// A note says what happens where the specification does not let something be as
// it is elsewhere.
type note struct{ text string }

// A feature is a row of the matrix. what follows from the facts about both
// revisions alone: nil where it works. check fails when anything else happens.
type feature struct {
	name  string
	what  func(client, server *era.Revision) *note
	check func(ctx context.Context, v *matrixClient, want *note) error
}

var (
	inText = &note{
		"The JSON is in the text of the result, and there alone: one of the revisions has no " +
			"structured content.",
	}
	inTextAny = &note{
		"The JSON is in the text of the result, and there alone: in one of the revisions structured " +
			"content is an object.",
	}
	audioText = &note{"In its place there is a text that names its type and size."}
	linkText  = &note{"In its place there is a text with its name and address."}
	dropped   = &note{"It is dropped: one of the revisions has nowhere to put it."}
	noContext = &note{
		"Values are suggested, but without regard to the arguments known so far, which do not " +
			"get through.",
	}
	noMessage   = &note{"The progress arrives, its message does not."}
	serverNever = &note{
		"The server's revision does not let it ask. Its tool fails with a text that says so, and the " +
			"client is not asked.",
	}
	toldText = &note{
		"The client's revision cannot be asked, and the server knows. Its tool fails with a text " +
			"that says so.",
	}
	toldError = &note{
		"The client's revision cannot be asked, and the server knows. The call is answered with the " +
			"error -32600, which names what is missing.",
	}
	bareError = &note{
		"The client gets the error as it is, as any other one that its revision does not know, with " +
			"the addresses in its data.",
	}
	ownCode = &note{
		"Neither revision has that error: it is one of the server's own, and gets through as any other.",
	}
	takenFor = &note{
		"The server's revision has no such error, and the client takes it for the one that its own " +
			"has: the user is sent there, and the call is made again.",
	}
	noHint = &note{
		"No source says how long it may be kept, so the answer has the hint not to keep it: `ttlMs` 0, " +
			"`cacheScope` private.",
	}
	noHints = &note{"The client's revision has no such hints, and there are none in the result."}
	noTasks = &note{
		"The server has no tasks, and the gateway declares none. The client calls the tool and waits " +
			"for its result.",
	}
	waits = &note{
		"The client's revision has no tasks. It calls the tool and waits for its result, also where " +
			"that is a task of the server.",
	}
)

func works(_, _ *era.Revision) *note { return nil }

// lacking is the note for a fact that is not true of one of the revisions.
func lacking(fact func(*era.Revision) bool, n *note) func(client, server *era.Revision) *note {
	return func(client, server *era.Revision) *note {
		if fact(client) && fact(server) {
			return nil
		}
		return n
	}
}

// asking is what becomes of a question that not every revision has.
func asking(fact func(*era.Revision) bool) func(client, server *era.Revision) *note {
	return func(client, server *era.Revision) *note {
		switch {
		case !fact(server):
			return serverNever
		case fact(client):
			return nil
		case !server.Handshake:
			return toldError
		}
		return toldText
	}
}

func hasTasks(r *era.Revision) bool { return r.LegacyTasks || r.TasksExtension }

func features() []feature {
	return slices.Concat(offered(), contents(), whileCalled(), questions(), others())
}

func offered() []feature {
	return []feature{
		{"tools", works, checkTools},
		{"tool annotations", lacking(func(r *era.Revision) bool {
			return r.ToolAnnotations
		}, dropped), checkAnnotations},
		{"titles", lacking(func(r *era.Revision) bool { return r.Titles }, dropped), checkTitles},
		{"icons", lacking(func(r *era.Revision) bool { return r.Icons }, dropped), checkIcons},
		{"resources", works, checkResources},
		{"resource templates", works, checkTemplates},
		{"prompts", works, checkPrompts},
		{"completion", works, checkCompletion},
		{"completion with context", lacking(func(r *era.Revision) bool {
			return r.CompletionContext
		}, noContext), checkCompletionContext},
		{"pagination", works, checkPages},
	}
}

func contents() []feature {
	return []feature{
		{"structured output", lacking(func(r *era.Revision) bool {
			return r.StructuredContent && r.OutputSchema
		}, inText), checkStructured},
		{"structured output that is no object", func(client, server *era.Revision) *note {
			switch {
			case !client.StructuredContent || !server.StructuredContent:
				return inText
			case !client.AnyStructured || !server.AnyStructured:
				return inTextAny
			}
			return nil
		}, checkScores},
		{"audio", lacking(func(r *era.Revision) bool { return r.Audio }, audioText), checkAudio},
		{"resource links", lacking(func(r *era.Revision) bool {
			return r.ResourceLinks
		}, linkText), checkLinks},
		{"images and embedded resources", works, checkImages},
	}
}

func checkTools(ctx context.Context, v *matrixClient, _ *note) error {
	tools, err := v.Tools(ctx)
	if err != nil {
		return err
	}
	var names []string
	for _, t := range tools {
		names = append(names, t.Name)
	}
	// The order is the server's.
	want := "[echo add scores media count forever trace keep fail refuse greet visit locked capital " +
		"where work job interview endless extra]"
	if err := differ("tools", names, want); err != nil {
		return err
	}
	text, err := v.tool(ctx, "echo", playText{v.name})
	return errors.Join(err, differ("echo", text, v.name))
}

func findTool(ctx context.Context, v *matrixClient, name string) (t mcp.Tool, err error) {
	tools, err := v.Tools(ctx)
	if err != nil {
		return t, err
	}
	i := slices.IndexFunc(tools, func(t mcp.Tool) bool { return t.Name == name })
	if i < 0 {
		return t, fmt.Errorf("there is no tool %s", name)
	}
	return tools[i], nil
}

func checkAnnotations(ctx context.Context, v *matrixClient, want *note) error {
	t, err := findTool(ctx, v, "add")
	if err != nil {
		return err
	}
	return differ("readOnlyHint", t.Annotations != nil && t.Annotations.ReadOnlyHint, want == nil)
}

func checkTitles(ctx context.Context, v *matrixClient, want *note) error {
	all, err := v.Prompts(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(p mcp.Prompt) bool { return p.Name == "review" })
	if i < 0 {
		return errors.New("there is no prompt review")
	}
	return differ("title", all[i].Title == "Code review", want == nil)
}

func checkIcons(ctx context.Context, v *matrixClient, want *note) error {
	t, err := findTool(ctx, v, "add")
	if err != nil {
		return err
	}
	return differ("icon", len(t.Icons) == 1 && t.Icons[0].MIMEType == "image/png", want == nil)
}

func checkResources(ctx context.Context, v *matrixClient, _ *note) error {
	all, err := v.Resources(ctx)
	if err != nil {
		return err
	}
	var uris []string
	for _, r := range all {
		uris = append(uris, r.URI)
	}
	slices.Sort(uris)
	if err := differ("resources", uris,
		"[note:///extra note:///picture note:///readme note:///watched]"); err != nil {
		return err
	}
	text, err := v.Read(ctx, "note:///readme")
	if err != nil {
		return err
	}
	blob, err := v.Read(ctx, "note:///picture")
	if err != nil {
		return err
	}
	return errors.Join(
		differ("readme", len(text.Contents) == 1 && text.Contents[0].URI == "note:///readme" &&
			text.Contents[0].Text == "Welcome", true),
		differ("picture", bytes.Equal(blob.Contents[0].Blob, []byte{0, 1, 2}), true))
}

func checkTemplates(ctx context.Context, v *matrixClient, _ *note) error {
	all, err := v.Templates(ctx)
	if err != nil {
		return err
	}
	if len(all) != 1 || all[0].URITemplate != "note:///{number}" {
		return fmt.Errorf("templates: %v", all)
	}
	r, err := v.Read(ctx, "note:///7")
	if err != nil {
		return err
	}
	return differ("note 7", r.Contents[0].Text, "note 7")
}

func checkPrompts(ctx context.Context, v *matrixClient, _ *note) error {
	all, err := v.Prompts(ctx)
	if err != nil {
		return err
	}
	var names []string
	for _, p := range all {
		names = append(names, p.Name)
	}
	slices.Sort(names)
	p, err := v.Prompt(ctx, "review", map[string]string{"language": v.name})
	if err != nil {
		return err
	}
	return errors.Join(differ("prompts", names, "[extra review]"),
		differ("prompt", p.Messages[0].Content.Text, "Review this "+v.name+" code"))
}

func complete(ctx context.Context, v *matrixClient, known map[string]string) ([]string, error) {
	p := &spec.CompleteRequestParams{
		Ref:      spec.CompleteReference{Type: spec.RefPrompt, Name: "review"},
		Argument: spec.CompleteArgument{Name: "language", Value: "g"},
	}
	if known != nil {
		p.Context = &spec.CompleteContext{Arguments: known}
	}
	r, err := v.Complete(ctx, p)
	if err != nil {
		return nil, err
	}
	return r.Completion.Values, nil
}

func checkCompletion(ctx context.Context, v *matrixClient, _ *note) error {
	values, err := complete(ctx, v, nil)
	return errors.Join(err, differ("values", values, "[go gleam]"))
}

func checkCompletionContext(ctx context.Context, v *matrixClient, want *note) error {
	values, err := complete(ctx, v, map[string]string{"level": "experts"})
	if want != nil {
		return errors.Join(err, differ("values", values, "[go gleam]"))
	}
	return errors.Join(err, differ("values", values, "[go for experts gleam for experts]"))
}

func checkPages(ctx context.Context, v *matrixClient, _ *note) error {
	var names []string
	cursor := ""
	for pages := 1; ; pages++ {
		var r spec.ListToolsResult
		if err := v.Request(ctx, spec.MethodToolsList, &spec.PaginatedRequestParams{Cursor: cursor},
			&r); err != nil {
			return err
		}
		if len(r.Tools) == 0 || len(r.Tools) > playPage {
			return fmt.Errorf("page %d has %d tools", pages, len(r.Tools))
		}
		for _, t := range r.Tools {
			names = append(names, t.Name)
		}
		if cursor = r.NextCursor; cursor == "" {
			break
		}
	}
	n := len(names)
	slices.Sort(names)
	names = slices.Compact(names)
	err := v.Request(ctx, spec.MethodToolsList, &spec.PaginatedRequestParams{Cursor: "bad"}, nil)
	return errors.Join(differ("tools on all pages", fmt.Sprint(n, " ", len(names)), "20 20"),
		codeIs("an invalid cursor", err, jsonrpc.InvalidParams))
}

// codeIs is the error for an error that has not the code.
func codeIs(what string, err error, want jsonrpc.Code) error {
	wire := (*jsonrpc.Error)(nil)
	if !errors.As(err, &wire) || wire.Code != want {
		return fmt.Errorf("%s: got %w, want the code %d", what, err, int(want))
	}
	return nil
}

func checkStructured(ctx context.Context, v *matrixClient, want *note) error {
	t, err := findTool(ctx, v, "add")
	if err != nil {
		return err
	}
	r, err := v.CallTool(ctx, "add", playAdd{20, 22})
	if err != nil {
		return err
	}
	structured := `{"sum":42}`
	if want != nil {
		structured = ""
	}
	return errors.Join(differ("outputSchema", t.OutputSchema != nil, want == nil),
		differ("structuredContent", string(r.StructuredContent), structured),
		differ("text", textOf(r), `{"sum":42}`))
}

func checkScores(ctx context.Context, v *matrixClient, want *note) error {
	r, err := v.CallTool(ctx, "scores", nil)
	if err != nil {
		return err
	}
	structured := `[3,1,4]`
	if want != nil {
		structured = ""
	}
	return errors.Join(differ("structuredContent", string(r.StructuredContent), structured),
		differ("text", textOf(r), `[3,1,4]`))
}

func media(ctx context.Context, v *matrixClient, i int) (mcp.Content, error) {
	r, err := v.CallTool(ctx, "media", nil)
	if err != nil {
		return mcp.Content{}, err
	}
	if len(r.Content) != 5 || r.Content[0].Text != "hello" {
		return mcp.Content{}, fmt.Errorf("contents: %v", r.Content)
	}
	return r.Content[i], nil
}

func checkAudio(ctx context.Context, v *matrixClient, want *note) error {
	c, err := media(ctx, v, 2)
	if err != nil {
		return err
	}
	if want != nil {
		if c.Type != spec.TypeText || !strings.Contains(c.Text, "audio/wav") ||
			!strings.Contains(c.Text, fmt.Sprint(len("sound"))) {
			return fmt.Errorf("in place of audio: %v", c)
		}
		return nil
	}
	return differ("audio", fmt.Sprintf("%s %s %s", c.Type, c.MIMEType, c.Data),
		"audio audio/wav sound")
}

func checkLinks(ctx context.Context, v *matrixClient, want *note) error {
	c, err := media(ctx, v, 3)
	if err != nil {
		return err
	}
	if want != nil {
		if c.Type != spec.TypeText || !strings.Contains(c.Text, "the first note") ||
			!strings.Contains(c.Text, "note:///1") {
			return fmt.Errorf("in place of a link: %v", c)
		}
		return nil
	}
	return differ("link", fmt.Sprintf("%s %s %s", c.Type, c.URI, c.Name),
		"resource_link note:///1 the first note")
}

func checkImages(ctx context.Context, v *matrixClient, _ *note) error {
	image, err := media(ctx, v, 1)
	if err != nil {
		return err
	}
	embedded, err := media(ctx, v, 4)
	if err != nil {
		return err
	}
	return errors.Join(differ("image", base64.StdEncoding.EncodeToString(image.Data), "cG5n"),
		differ("embedded", embedded.Type == spec.TypeResource && embedded.Resource.Text == "note 2",
			true))
}
