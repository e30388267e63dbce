package gateway

import "testing"

// TestEndpoints has what cannot be an endpoint, and where.
func TestEndpoints(t *testing.T) {
	t.Parallel()
	const upstreams = "upstreams: {files: {command: a}, tracker: {command: b}}\nendpoints:\n  "
	for text, want := range map[string]string{
		`a: {tools: [files/*, "*/x"], resources: [], overrides: {files/x: {name: y, args: {z: ` +
			`{value: 1}}}}}`: "",
		`a:`: "3:3: endpoints.a: is empty; name its tools, as in tools: [files/*]",
		`files: {tools: [files/*]}`: `3:3: endpoints.files: "files" is the name of an upstream, too, ` +
			`and both are at /mcp/files; use another`,
		`"a b": {}`: `3:3: endpoints.a b: "a b" cannot be a name; use up to 64 ` +
			`letters, digits, - and _, as in team-a`,
		`a: {tools: [file/*]}`: `3:15: endpoints.a.tools[0]: there is no upstream "file"; did you ` +
			`mean files/*?`,
		`a: {prompts: [files]}`: `3:17: endpoints.a.prompts[0]: "files" is no pattern of ` +
			`UPSTREAM/NAME; write UPSTREAM/NAME, or UPSTREAM/* for all of it`,
		`a: {roles: [x]}`: "3:14: endpoints.a.roles: without a guard no principal has a " +
			"role; add guard, or remove roles",
		`a: {roles: {x: {tool: [], prompts: ` +
			`[file/*]}}}`: "3:15: endpoints.a.roles: without a guard no principal has a role; add guard, " +
			"or remove roles\n" +
			`f.yaml:3:19: endpoints.a.roles.x.tool: there is no key "tool" here; did you mean tools?` +
			"\n" +
			`f.yaml:3:39: endpoints.a.roles.x.prompts[0]: there is no upstream "file"; did you ` +
			`mean files/*?`,
		`a: {tool: [files/*]}`: `3:7: ` +
			`endpoints.a.tool: there is no key "tool" here; did you mean tools?`,
		`a: {overrides: {files/*: {name: x}}}`: "3:29: " +
			"endpoints.a.overrides.files/*: a pattern cannot be overridden; name one tool",
		`a: {overrides: {files/a: {name: x}, files/b: {name: x}}}`: "3:55: " +
			"endpoints.a.overrides.files/b.name: files/a has the same name; use another",
		`a: {overrides: {files/a: {name: x__y}}}`: `3:35: ` +
			`endpoints.a.overrides.files/a.name: "x__y" cannot be a name; use up to 128 letters, digits, ` +
			`_, -, . and /, without __`,
		`a: {overrides: {files/a: {args: {b: {value: 1, default: 2}}}}}`: "3:40: " +
			"endpoints.a.overrides.files/a.args.b: it has both a value and a default; keep one: callers " +
			"cannot give an argument that has a value",
		`a: {overrides: {files/a: {annotations: {readOnly: true}}}}`: `3:43: ` +
			`endpoints.a.overrides.files/a.annotations.readOnly: there is no key "readOnly" here; remove it`,
		`a: {overrides: {files/a: {annotations: {readOnlyHint: true}}}}`: "3:57: " +
			"endpoints.a.overrides.files/a.annotations.readOnlyHint: clients that rely on it may call the " +
			"tool without asking; add trust: true to the override if it holds, or remove it",
		`a: {overrides: {files/a: {annotations: {readOnlyHint: false}}}}`: "",
		`a: {overrides: {files/a: {output: {fields: [a.b], max: 8KB}}}}`:  "",
		`a: {overrides: {files/a: {output: {fields: [a.]}}}}`: `3:47: ` +
			`endpoints.a.overrides.files/a.output.fields[0]: "a." is no name of a member; write names ` +
			`with dots between them, as in items.id`,
		`a: {overrides: {files/a: {output: {}}}}`: "3:37: " +
			"endpoints.a.overrides.files/a.output: it leaves everything; add fields or max, or remove it",
		`a: {overrides: {files/a: {args: {b: {from: principal.id}}}}}`: "3:46: " +
			"endpoints.a.overrides.files/a.args.b.from: without a guard no caller is known; add guard, or " +
			"remove from",
		`a: {overrides: {files/a: {args: {b: {from: header.X-Team}}}}}`: "",
		`a: {overrides: {files/a: {args: {b: {from: ` +
			`header.Cookie}}}}}`: "3:46: endpoints.a.overrides.files/a.args.b.from: the header Cookie is " +
			"for the gateway alone: " + forwardsCredentials + "; name another header, or principal.id",
		`a: {overrides: {files/a: {args: {b: {from: header., }}}}}`: `3:46: ` +
			`endpoints.a.overrides.files/a.args.b.from: "header." is nothing that a caller has; use ` +
			`principal.id, principal.issuer, principal.claims.NAME or header.NAME`,
		`a: {overrides: {files/a: {args: {b: {from: header.X, hide: true}}}}}`: "3:46: " +
			"endpoints.a.overrides.files/a.args.b.from: callers do not see what comes from them, and it " +
			"has other keys; keep from, or the others",
	} {
		_, got := parse(t, "f.yaml", upstreams+text+"\n")
		if want != "" {
			want = "f.yaml:" + want
		}
		if got != want {
			t.Errorf("%s\n got %s\nwant %s", text, got, want)
		}
	}
}
