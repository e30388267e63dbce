package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"time"

	"github.com/farcall-dev/farcall/jsonrpc"
)

var (
	namedParam = regexp.MustCompile(`^([A-Za-z_$][A-Za-z0-9_$./-]*)(:?=)((?s:.*))$`)
	paramsHint = "Quote JSON for the shell, '{\"a\":2}', or write a=2 b=3."
)

// parseParams makes params of the words of a command line. None give nil.
func parseParams(args []string, stdin io.Reader) (jsonrpc.Raw, error) {
	switch {
	case len(args) == 0:
		return nil, nil
	case len(args) == 1 && args[0] == "-":
		return readParams(stdin, "standard input")
	case len(args) == 1 && len(args[0]) > 1 && args[0][0] == '@':
		f, err := os.Open(args[0][1:])
		if err != nil {
			return nil, unreadable("the params (@FILE)", args[0][1:], err)
		}
		defer f.Close() //nolint:errcheck // it was only read
		return readParams(f, args[0][1:])
	case len(args) == 1 && (args[0] == "" || args[0][0] == '{' || args[0][0] == '['):
		return checkParams([]byte(args[0]), "the params")
	}
	return joinParams(args)
}

// joinParams makes an object of name=value words, or an array of others.
func joinParams(args []string) (jsonrpc.Raw, error) {
	named := namedParam.MatchString(args[0])
	for _, arg := range args {
		if named != namedParam.MatchString(arg) {
			return nil, usagef(paramsHint, "params are either all name=value or none: %q does not fit %q",
				arg, args[0])
		}
	}
	if named {
		return joinNamed(args, "param", func(_, text string) (jsonrpc.Raw, error) {
			return appendWord(nil, text), nil
		})
	}
	raw := jsonrpc.Raw{'['}
	for i, arg := range args {
		if i > 0 {
			raw = append(raw, ',')
		}
		raw = appendWord(raw, arg)
	}
	return append(raw, ']'), nil
}

// joinNamed makes an object of name=value and name:=JSON words, which are each a param or another
// noun. value makes JSON of the value of name=value.
func joinNamed(
	words []string, noun string, value func(name, text string) (jsonrpc.Raw, error),
) (jsonrpc.Raw, error) {
	raw := jsonrpc.Raw{'{'}
	seen := map[string]bool{}
	for _, word := range words {
		m := namedParam.FindStringSubmatch(word)
		name, text := m[1], jsonrpc.Raw(m[3])
		if seen[name] {
			return nil, usagef("Several values are written as JSON: "+name+`='["a","b"]'.`,
				"the %s %q is given twice", noun, name)
		}
		seen[name] = true
		err := jsonrpc.Valid(text)
		if m[2] == "=" {
			if text, err = value(name, m[3]); err != nil {
				return nil, err
			}
		} else if err != nil {
			return nil, usagef("name:=value takes JSON, name=value takes text.",
				"the value of %q is not JSON: %w", name, err)
		}
		raw = appendMember(raw, name, text)
	}
	return append(raw, '}'), nil
}

// appendMember appends a member to an object without its closing brace.
func appendMember(object jsonrpc.Raw, name string, value []byte) jsonrpc.Raw {
	if object[len(object)-1] != '{' {
		object = append(object, ',')
	}
	return append(append(jsonrpc.AppendString(object, name), ':'), value...)
}

// appendWord appends a word as the JSON it is, or else as a string.
func appendWord(raw jsonrpc.Raw, word string) jsonrpc.Raw {
	if jsonrpc.Valid([]byte(word)) == nil {
		return append(raw, word...)
	}
	return jsonrpc.AppendString(raw, word)
}

func readParams(r io.Reader, name string) (jsonrpc.Raw, error) {
	b, err := io.ReadAll(r)
	if err != nil {
		return nil, usagef("", "cannot read the params: %w", err)
	}
	return checkParams(b, name)
}

func checkParams(b []byte, name string) (jsonrpc.Raw, error) {
	if err := jsonrpc.Valid(b); err != nil { // before white space is cut off, for the offset
		return nil, usagef(paramsHint, "%s: not JSON: %w", name, err)
	}
	b = bytes.TrimSpace(b)
	if b[0] != '{' && b[0] != '[' {
		return nil, usagef(paramsHint, "%s: params must be an object or an array, not %s", name,
			excerpt(b))
	}
	return b, nil
}

// excerpt shows the start of what may be long and may hold anything.
func excerpt(b []byte) string {
	const most = 80
	if b = bytes.TrimSpace(b); len(b) == 0 {
		return "nothing"
	}
	if len(b) > most {
		return fmt.Sprintf("%s… (%d bytes)", tame(string(b[:most])), len(b))
	}
	return tame(string(b))
}

// pipedNotice is after how long without params on standard input farcall says that it waits for
// them.
const pipedNotice = time.Second

// isPiped reports whether r is a pipe or a file, which may have params. A terminal, the
// null device and a socket do not count: parents such as Node.js leave an unused socket open.
func isPiped(r io.Reader) bool {
	file, ok := r.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && (info.Mode().IsRegular() || info.Mode()&os.ModeNamedPipe != 0)
}

// pipedParams returns the params that are piped into the program, nil for none. A pipe that stays
// open without params is waited for as long as --timeout says, and not in silence.
func (r *remote) pipedParams(ctx context.Context) (jsonrpc.Raw, error) {
	if !isPiped(r.stdin) {
		return nil, nil
	}
	notice := time.AfterFunc(pipedNotice, func() {
		fmt.Fprintln(r.stderr,
			"farcall: waiting for params on standard input, which is a pipe; </dev/null calls "+
				"without params")
	})
	defer notice.Stop()
	ctx, cancel := r.limit(ctx)
	defer cancel()
	type input struct {
		text []byte
		err  error
	}
	read := make(chan input, 1)
	go func() { // ends with the program at the latest: not every pipe has deadlines
		text, err := io.ReadAll(r.stdin)
		read <- input{text, err}
	}()
	select {
	case in := <-read:
		if in.err != nil {
			return nil, usagef("", "cannot read the params: %w", in.err)
		}
		if len(bytes.TrimSpace(in.text)) == 0 {
			return nil, nil
		}
		params, err := checkParams(in.text, "standard input")
		if exit, ok := errors.AsType[*exitError](err); ok {
			exit.hint = "Without PARAMS, the params are what is piped in, in a loop over lines too. Write " +
				"PARAMS, or </dev/null for none."
		}
		return params, err
	case <-ctx.Done():
		return nil, failf(exitTimeout, "Write PARAMS, or </dev/null for none.",
			"standard input is a pipe that was not closed in time, so the params are not known")
	}
}
