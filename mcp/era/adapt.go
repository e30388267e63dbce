package era

import (
	"encoding/hex"
	"hash/fnv"

	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// This file has the edits of single types that are more than a member dropped.

// refused is an edit for a member that makes the whole message impossible.
func refused(why cannot) edit {
	return edit{do: func(jsonrpc.Raw) (jsonrpc.Raw, error) { return nil, why }}
}

func dropComplete(v jsonrpc.Raw) (jsonrpc.Raw, error) {
	if !is(v, "complete") {
		return nil, cannot("has no result of type " + string(v))
	}
	return nil, nil
}

// wrapTask makes of a result that is a task one that has a task.
func wrapTask(v jsonrpc.Raw) (jsonrpc.Raw, error) {
	if !is(scan.Member(v, "resultType"), "task") {
		return v, nil
	}
	meta := scan.Member(v, "_meta")
	v, _ = drop("resultType", "_meta").do(v)
	v, err := legacyTask.do(v)
	if err != nil {
		return nil, err
	}
	v = with(jsonrpc.Raw("{}"), "task", v)
	if meta != nil {
		v = with(v, "_meta", meta)
	}
	return v, nil
}

// legacyTask and modernTask are a task in its two forms.
var (
	legacyTask = all(
		rename([2]string{"ttlMs", "ttl"}, [2]string{"pollIntervalMs", "pollInterval"}),
		drop("result", "error", "inputRequests"),
	)
	modernTask = rename([2]string{"ttl", "ttlMs"}, [2]string{"pollInterval", "pollIntervalMs"})
)

// unwrapTask is the way back.
func unwrapTask(v jsonrpc.Raw) (jsonrpc.Raw, error) {
	task := scan.Member(v, "task")
	if scan.Member(task, "taskId") == nil || scan.Member(v, "content") != nil {
		return v, nil
	}
	task, err := modernTask.do(task)
	if err != nil {
		return nil, err
	}
	if meta := scan.Member(v, "_meta"); meta != nil {
		task = with(task, "_meta", meta)
	}
	return with(task, "resultType", jsonrpc.Raw(`"task"`)), nil
}

func refuseTask(v jsonrpc.Raw) (jsonrpc.Raw, error) {
	if scan.Member(scan.Member(v, "task"), "taskId") != nil && scan.Member(v, "content") == nil {
		return nil, cannot("has no tasks: call without asking for one")
	}
	return v, nil
}

func refuseRequiredTool(v jsonrpc.Raw) (jsonrpc.Raw, error) {
	if is(scan.Member(scan.Member(v, "toolChoice"), "mode"), "required") {
		return nil, cannot("has no tools in sampling, and toolChoice requires the use of one")
	}
	return v, nil
}

// refuseURL lets only forms pass.
func refuseURL(v jsonrpc.Raw) (jsonrpc.Raw, error) {
	if mode := scan.Member(v, "mode"); mode != nil && !is(mode, "form") {
		return nil, cannot("has no elicitation but with forms, and the mode is " + string(mode))
	}
	return drop("mode").do(v)
}

// formsOnly makes {} of the elicitation capability, which stands for forms.
func formsOnly(v jsonrpc.Raw) (jsonrpc.Raw, error) {
	if scan.Member(v, "url") != nil && scan.Member(v, "form") == nil {
		return nil, nil
	}
	return drop("url", "form").do(v)
}

// identify gives an elicitation of mode url an elicitationId. The same params
// get the same one, so that a translation has no state.
func identify(v jsonrpc.Raw) (jsonrpc.Raw, error) {
	if !is(scan.Member(v, "mode"), "url") || scan.Member(v, "elicitationId") != nil {
		return v, nil
	}
	h := fnv.New128a()
	h.Write(v)
	return with(v, "elicitationId", quoted(hex.EncodeToString(h.Sum(nil)))), nil
}

// singleChoices drops the optional fields of a form in which several may be
// chosen, and refuses a form in which such a field is required.
func singleChoices(v jsonrpc.Raw) (jsonrpc.Raw, error) {
	required := map[string]bool{}
	for v := range scan.Elements(scan.Member(v, "required")) {
		required[text(v)] = true
	}
	return member("properties", edit{do: func(fields jsonrpc.Raw) (jsonrpc.Raw, error) {
		return rewrite(fields, '{', func(name []byte, field jsonrpc.Raw) (jsonrpc.Raw, error) {
			switch {
			case !is(scan.Member(field, "type"), "array"):
				return field, nil
			case required[string(name)]:
				return nil, cannot("has no form field in which several may be chosen, and " +
					string(quoted(name)) + " is required")
			}
			return nil, nil
		})
	}}).do(v)
}

// plainField is a form field without what came later.
var plainField = edit{do: func(v jsonrpc.Raw) (jsonrpc.Raw, error) {
	if is(scan.Member(v, "type"), "boolean") {
		return v, nil
	}
	v, err := drop("default").do(v)
	if err != nil || scan.Member(v, "oneOf") == nil {
		return v, err
	}
	var values, names jsonrpc.Raw
	for choice := range scan.Elements(scan.Member(v, "oneOf")) {
		value, name := scan.Member(choice, "const"), scan.Member(choice, "title")
		if name == nil {
			name = value
		}
		if value != nil {
			values = append(append(values, ','), value...)
			names = append(append(names, ','), name...)
		}
	}
	if values == nil {
		return v, nil
	}
	v, _ = drop("oneOf").do(v)
	v = with(v, "enum", bracketed(values))
	return with(v, "enumNames", bracketed(names)), nil
}}

// bracketed makes an array of elements that each come after a comma.
func bracketed(elements jsonrpc.Raw) jsonrpc.Raw {
	out := append(jsonrpc.Raw{'['}, elements[1:]...)
	return append(out, ']')
}

func objectSchema(v jsonrpc.Raw) (jsonrpc.Raw, error) {
	if !is(scan.Member(v, "type"), "object") {
		return nil, nil
	}
	return v, nil
}

var booleanSchema = edit{do: func(v jsonrpc.Raw) (jsonrpc.Raw, error) {
	switch string(v) {
	case "true":
		return jsonrpc.Raw("{}"), nil
	case "false":
		return jsonrpc.Raw(`{"not":{}}`), nil
	}
	return v, nil
}}

// titleToAnnotations moves a tool's title to where it was before.
var titleToAnnotations = when("title", func(v jsonrpc.Raw) (jsonrpc.Raw, error) {
	title := scan.Member(v, "title")
	if title == nil {
		return v, nil
	}
	v, _ = drop("title").do(v)
	annotations := scan.Member(v, "annotations")
	if annotations == nil {
		return with(v, "annotations", with(nil, "title", title)), nil
	}
	return member("annotations", add("title", string(title))).do(v)
})
