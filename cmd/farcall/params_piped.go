package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/farcall-dev/farcall/jsonrpc"
)

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
		fmt.Fprintln(r.stderr, "farcall: waiting for params on standard input, which is a pipe; </dev/null calls without params")
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
			exit.hint = "Without PARAMS, the params are what is piped in, in a loop over lines too. Write PARAMS, or </dev/null for none."
		}
		return params, err
	case <-ctx.Done():
		return nil, &exitError{
			code: exitTimeout, err: errors.New("standard input is a pipe that was not closed in time, so the params are not known"),
			hint: "Write PARAMS, or </dev/null for none.",
		}
	}
}
