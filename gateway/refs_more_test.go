package gateway_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/skills"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// visit is the data of an error with an id that all servers have.
const visit = `{"elicitations":[{"mode":"url","elicitationId":"e-1","url":"https://example.com/",` +
	`"message":"x"}]}`

const sharedSkill = "shared-skill"

// addSkill gives a server the skill that all servers have. Its files have the server's mark.
func addSkill(s *mcp.Server, mark string) {
	files := fstest.MapFS{
		sharedSkill + "/SKILL.md": {
			Data: []byte("---\nname: " + sharedSkill + "\ndescription: " + mark + "\n---\nText.\n"),
		},
		sharedSkill + "/refs/more.md": {Data: []byte(mark)},
	}
	if _, err := skills.Add(s, files, nil); err != nil {
		panic(err)
	}
}

// ofSkill reports whether a resource is a file of that skill, which walkMore reads.
func ofSkill(uri string) bool {
	return strings.Contains(uri, sharedSkill) || strings.HasSuffix(uri, "index.json")
}

// walkMore follows what walk does not: the references of completions, skills, subscriptions, tasks
// and questions at a URL.
func (w *walker) walkMore(servers map[string]*mcp.Server) {
	ctx := w.t.Context()
	tools, err := w.Tools(ctx)
	prompts, err2 := w.Prompts(ctx)
	resources, err3 := w.Resources(ctx)
	templates, err4 := w.Templates(ctx)
	if err := errors.Join(err, err2, err3, err4); err != nil {
		w.t.Fatal(w.revision, err)
	}
	for _, p := range prompts {
		w.complete(spec.CompleteReference{Type: spec.RefPrompt, Name: p.Name}, p.Description)
	}
	for _, t := range templates {
		w.complete(spec.CompleteReference{Type: spec.RefResource, URI: t.URITemplate}, t.Description)
	}
	if all, err := skills.List(ctx, w.Client); err == nil {
		for _, s := range all {
			text, err := s.Read(ctx, strings.TrimSuffix(s.URI, "SKILL.md")+"refs/more.md")
			w.count("skill", s.URI, s.Description, string(text), err)
			again, err := skills.Get(ctx, w.Client, s.URI)
			if err != nil {
				again = &skills.Skill{}
			}
			w.count("skill", s.URI, s.Description, again.Description, err)
		}
	}
	for _, t := range tools {
		if strings.HasSuffix(t.Name, "__own-"+t.Description) {
			w.task(t.Name, t.Description)
			w.visit(t.Name, t.Description)
		}
	}
	w.subscribe(servers, slices.DeleteFunc(resources, func(r mcp.Resource) bool {
		return ofSkill(r.URI) || strings.HasPrefix(r.URI, "http") || strings.HasPrefix(r.URI, "data")
	}))
}

// complete completes an argument of a prompt, or of a template.
func (w *walker) complete(ref spec.CompleteReference, mark string) {
	r, err := w.Complete(w.t.Context(),
		&spec.CompleteRequestParams{Ref: ref, Argument: spec.CompleteArgument{Name: "x"}})
	got := ""
	if err == nil && len(r.Completion.Values) == 1 {
		got = r.Completion.Values[0]
	}
	w.count("completion", ref.Name+ref.URI, mark, got, err)
}

// task calls a tool as a task, where the revision and the server have tasks.
func (w *walker) task(tool, mark string) {
	t, err := w.StartTask(w.t.Context(), tool, nil, 0)
	if err != nil || t.TaskID == "" {
		return
	}
	r, err := w.WaitTask(w.t.Context(), t.TaskID)
	if err != nil {
		w.count("task", t.TaskID, mark, "", err)
		return
	}
	w.count("task", t.TaskID, mark, r.Content[0].Text, nil)
	w.follow(map[string]bool{}, r.Content, r.Meta)
}

// visit gets the id of a question at a URL, where the revision has such an error. It is qualified
// by the label of its server, since all servers have the same one.
func (w *walker) visit(tool, mark string) {
	_, err := w.CallTool(w.t.Context(), tool, map[string]bool{"visit": true})
	wire, ok := errors.AsType[*jsonrpc.Error](err)
	if !ok || scan.Member(wire.Data, "elicitations") == nil {
		return
	}
	id := ""
	for one := range scan.Elements(scan.Member(wire.Data, "elicitations")) {
		id = scan.StringMember(one, "elicitationId")
	}
	labels := map[string]string{"a": "a", "b": "b", "c_d": "c.d", "2e": "n.2e", "F": "f"}
	w.count("elicitation", id, labels[mark]+"+e-1", id, nil)
}

// subscribe watches resources, and has their servers report that they have changed, one after the
// other.
func (w *walker) subscribe(servers map[string]*mcp.Server, resources []mcp.Resource) {
	ctx, cancel := context.WithCancel(w.t.Context())
	var uris []string
	for _, r := range resources {
		uris = append(uris, r.URI)
	}
	ended := make(chan error, 1)
	go func() { ended <- w.Listen(ctx, spec.SubscriptionFilter{ResourceSubscriptions: uris}) }()
	received(w.t, "the beginning of listening", w.listening)
	for _, r := range resources {
		servers[r.Description].ResourceUpdated(r.Name)
		w.count("subscription", r.URI, r.URI, received(w.t, "an update of "+r.URI, w.updated), nil)
	}
	cancel()
	<-ended
}

// TestReferencesListen: a client listens to resources of three servers. One of them refuses, and
// the client learns which two it gets.
func TestReferencesListen(t *testing.T) {
	t.Parallel()
	c := &gateway.Config{Namespace: "always"}
	for _, name := range []string{"a", "b", "c"} {
		s := mcp.NewServer(name, "1",
			&mcp.ServerOptions{OnSubscribe: func(context.Context, string) (func(), error) {
				if name == "b" {
					return nil, errors.New("not to be watched")
				}
				return func() {}, nil
			}})
		s.AddResource(mcp.Resource{URI: "file:///x", Name: "x"},
			func(_ context.Context, uri string) ([]mcp.ResourceContents, error) {
				return []mcp.ResourceContents{{URI: uri, Text: name}}, nil
			})
		c.Upstreams = append(c.Upstreams, &gateway.Upstream{Name: name, Server: s})
	}
	granted := make(chan spec.SubscriptionFilter, 1)
	client := newLabOf(t, nil,
		c).client(t, mcp.ClientOptions{OnListening: func(f spec.SubscriptionFilter) {
		granted <- f
	}})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- client.Listen(ctx,
			spec.SubscriptionFilter{
				ResourceSubscriptions: []string{"a+file:///x", "b+file:///x", "c+file:///x"},
			})
	}()
	if got := received(t, "the beginning of listening",
		granted).ResourceSubscriptions; !slices.Equal(got, []string{"a+file:///x", "c+file:///x"}) {
		t.Error(got)
	}
	cancel()
	<-ended
}

// TestReferencesWeb: URIs of the web stay as they are, unless their server is to be asked for them.
func TestReferencesWeb(t *testing.T) {
	t.Parallel()
	c := &gateway.Config{Namespace: "always"}
	for _, name := range []string{"a", "b"} {
		s := mcp.NewServer(name, "1", nil)
		for _, uri := range []string{"https://example.com/x", "data:,x"} {
			s.AddResource(mcp.Resource{URI: uri, Name: "x"},
				func(_ context.Context, uri string) ([]mcp.ResourceContents, error) {
					return []mcp.ResourceContents{{URI: uri, Text: name}}, nil
				})
		}
		c.Upstreams = append(c.Upstreams, &gateway.Upstream{Name: name, Server: s})
	}
	c.Upstreams[1].Web = "qualified"
	client := newLabOf(t, nil, c).client(t, mcp.ClientOptions{})
	for uri, want := range map[string]string{
		"https://example.com/x": "a", "data:,x": "a",
		"b+https://example.com/x": "b", "b+data:,x": "b",
	} {
		r, err := client.Read(t.Context(), uri)
		if err != nil || r.Contents[0].Text != want || r.Contents[0].URI != uri {
			t.Errorf("%s: %+v, %v", uri, r, err)
		}
	}
	resources, err := client.Resources(t.Context())
	if err != nil || len(resources) != 4 {
		t.Error(resources, err)
	}
}
