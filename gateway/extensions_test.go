package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/skills"
)

// skilled returns a server with some skills. Each of their files has its mark. One skill has the
// same name everywhere.
func skilled(t *testing.T, mark string, more int, o *skills.Options) *gateway.Upstream {
	t.Helper()
	files := fstest.MapFS{}
	for i := range more + 1 {
		name := "git-workflow"
		if i > 0 {
			name = fmt.Sprintf("%s-%d", mark, i)
		}
		files[name+"/SKILL.md"] = &fstest.MapFile{
			Data: []byte(
				"---\nname: " + name + "\ndescription: of " + mark + "\n---\nSee [it](refs/more.md).\n"),
		}
		files[name+"/refs/more.md"] = &fstest.MapFile{Data: []byte(mark)}
	}
	s := mcp.NewServer(mark, "1", nil)
	if _, err := skills.Add(s, files, o); err != nil {
		t.Fatal(err)
	}
	return &gateway.Upstream{Name: mark, Server: s}
}

// TestSkills: the skills of several servers are one list, and each file is read from its own
// server, with the digest that was listed, and by a reference relative to the SKILL.md that is
// shown.
func TestSkills(t *testing.T) {
	t.Parallel()
	l := newLabOf(t, nil, &gateway.Config{Namespace: "always", Upstreams: []*gateway.Upstream{
		skilled(t, "a", 3, &skills.Options{PageSize: 2}), newMock("legacy").tcp(t, "none"),
		skilled(t, "b_c", 0, nil), skilled(t, "d", 1, &skills.Options{PageSize: 1}),
	}})
	c := l.client(t, mcp.ClientOptions{})
	all, err := skills.List(t.Context(), c)
	if err != nil || len(all) != 7 {
		t.Fatalf("%d skills, %v", len(all), err)
	}
	same := 0
	for _, s := range all {
		mark := strings.TrimPrefix(s.Description, "of ")
		if s.Name == "git-workflow" {
			same++
		}
		if got, err := s.Read(t.Context(),
			strings.TrimSuffix(s.URI, "SKILL.md")+"refs/more.md"); err != nil || string(got) != mark {
			t.Errorf("%s: %q, %v", s.URI, got, err)
		}
		again, err := skills.Get(t.Context(), c, s.URI)
		if err != nil || again.Description != s.Description {
			t.Errorf("%s: %v, %v", s.URI, again, err)
		}
		var r struct {
			Resources []mcp.Resource `json:"resources"`
		}
		if err := c.Request(t.Context(), "resources/directory/read",
			map[string]string{"uri": strings.TrimSuffix(s.URI, "/SKILL.md") + "/refs"}, &r); err != nil ||
			len(r.Resources) != 1 {
			t.Errorf("%s: %v, %v", s.URI, r, err)
		} else if got, err := c.Read(t.Context(), r.Resources[0].URI); err != nil ||
			got.Contents[0].Text != mark {
			t.Errorf("%s: %v, %v", r.Resources[0].URI, got, err)
		}
	}
	if same != 3 {
		t.Errorf("%d skills of one name", same)
	}
	for _, bad := range []string{
		"skill://git-workflow/SKILL.md", "skill://none+/x/SKILL.md",
		"skill://absent+/x/SKILL.md",
	} {
		if _, err := skills.Get(t.Context(), c, bad); !errors.Is(err, jsonrpc.InvalidParams) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	for _, cursor := range []string{"x", "bm9uZQo", ""} { // of no server, of one without skills
		if err := c.Request(t.Context(), "skills/list", map[string]string{"cursor": cursor},
			nil); !errors.Is(err, jsonrpc.InvalidParams) {
			t.Errorf("cursor %q: %v", cursor, err)
		}
	}
}

// TestUnknownExtensions: a method that no row of the gateway knows goes to the only server that
// declares an extension without a row, and is never tried at another one.
func TestUnknownExtensions(t *testing.T) {
	t.Parallel()
	calls := map[string]int{}
	one := func(name string, settings ...any) *gateway.Upstream {
		s := mcp.NewServer(name, "1", nil)
		for _, value := range settings {
			s.AddExtension("com.example/x", value)
		}
		s.Handle("x/do", farcall.HandlerFunc(func(context.Context, *farcall.Request) (any, error) {
			calls[name]++
			return map[string]string{}, nil
		}))
		return &gateway.Upstream{Name: name, Server: s}
	}
	for _, test := range []struct {
		name      string
		upstreams []*gateway.Upstream
		code      jsonrpc.Code // 0: b is called
		declared  bool
	}{
		{"one", []*gateway.Upstream{one("a"), one("b", map[string]any{})}, 0, true},
		{
			"two",
			[]*gateway.Upstream{one("a", map[string]any{}), one("b", map[string]any{})},
			jsonrpc.InvalidParams.Condition().Modern, true,
		},
		{
			"two that differ",
			[]*gateway.Upstream{one("a", map[string]any{"v": 1}), one("b", map[string]any{})},
			jsonrpc.InvalidParams.Condition().Modern, false,
		},
		{
			"none",
			[]*gateway.Upstream{one("a"), one("b")},
			jsonrpc.MethodNotFound.Condition().Modern,
			false,
		},
	} {
		clear(calls)
		c := newLabOf(t, nil, &gateway.Config{Namespace: "always", Upstreams: test.upstreams}).client(t,
			mcp.ClientOptions{})
		err := c.Request(t.Context(), "x/do", map[string]any{}, nil)
		wire, _ := errors.AsType[*jsonrpc.Error](err)
		switch {
		case test.code == 0 && (err != nil || calls["b"] != 1 || calls["a"] != 0),
			test.code != 0 &&
				(wire == nil || wire.Code != test.code || !strings.Contains(wire.Message, "/mcp/") ||
					len(calls) != 0):
			t.Errorf("%s: %v, calls %v", test.name, err, calls)
		}
		if _, declared := c.Server().Capabilities.Extensions["com.example/x"]; declared != test.declared {
			t.Errorf("%s: declared: %v", test.name, c.Server().Capabilities.Extensions)
		}
	}
}
