//go:build unix

package stream

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

const maxWrite = 1 << 30 // some systems refuse more in one call

// raw makes single system calls on descriptors that the runtime's poller
// watches. A reader gets its buffer only when there is something to read, and a
// writer learns what cannot be written now.
type raw struct {
	in, out            syscall.RawConn // nil where that is not possible
	readable, writable func(fd uintptr) bool
	child              bool // the streams of a child process: a passed deadline is the end

	// Of the read under way.
	input   *input
	limit   int
	readErr error

	// Of the write under way.
	p        []byte
	written  int
	writeErr error
}

// newRaw returns nil where neither direction has such descriptors. It knows
// types, not methods: a type that embeds a *net.TCPConn may mean something else
// by Read.
func newRaw(rwc io.ReadWriteCloser, in *input) *raw {
	r := &raw{input: in}
	switch s := rwc.(type) {
	case *net.TCPConn:
		r.in, _ = s.SyscallConn()
		r.out = r.in
	case *net.UnixConn:
		r.in, _ = s.SyscallConn()
		r.out = r.in
	case interface {
		Direct() (syscall.RawConn, error)
	}: // it counts what is read and written so
		r.in, _ = s.Direct()
		r.out = r.in
	case *os.File:
		r.in = pollable(s)
		r.out = r.in
	case interface{ files() (in, out *os.File) }:
		in, out := s.files()
		r.in, r.out, r.child = pollable(in), pollable(out), true
	}
	if r.in == nil && r.out == nil {
		return nil
	}
	r.readable, r.writable = r.onReadable, r.onWritable // bound once: no allocation for each call
	return r
}

// pollable returns nil for files that block.
func pollable(f *os.File) syscall.RawConn {
	if f.SetReadDeadline(time.Time{}) != nil && f.SetWriteDeadline(time.Time{}) != nil {
		return nil // not watched
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return nil
	}
	nonblocking := false
	err = conn.Control(func(fd uintptr) {
		// File.Fd makes a file blocking again.
		flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, fd, syscall.F_GETFL, 0)
		nonblocking = errno == 0 && flags&syscall.O_NONBLOCK != 0
	})
	if err != nil || !nonblocking {
		return nil
	}
	return conn
}

// readNow reads what is there without waiting, and returns 0 where nothing is. Unlike Read it does
// so after a deadline, too.
func readNow(f *os.File, p []byte) (n int, err error) {
	conn, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	control := conn.Control(func(fd uintptr) {
		for {
			if n, err = syscall.Read(int(fd), p); !errors.Is(err, syscall.EINTR) {
				return
			}
		}
	})
	if err = errors.Join(control, err); err != nil {
		return 0, err
	}
	return n, nil
}

func (r *raw) canRead() bool  { return r != nil && r.in != nil }
func (r *raw) canWrite() bool { return r != nil && r.out != nil }

// read waits for bytes and reads them into the input.
func (r *raw) read(limit int) error {
	r.limit, r.readErr = limit, nil
	err := r.in.Read(r.readable)
	if r.child && errors.Is(err, os.ErrDeadlineExceeded) {
		// The child has ended, though another process may hold its output open:
		// what it said before is there without waiting.
		before := len(r.input.unread())
		if err := r.in.Control(func(fd uintptr) { r.readable(fd) }); err != nil {
			return err
		}
		if r.readErr == nil && len(r.input.unread()) > before {
			return nil
		}
		return io.EOF
	}
	if err != nil {
		return err
	}
	return r.readErr
}

func (r *raw) onReadable(fd uintptr) bool {
	for {
		free := r.input.room(largeSize, r.limit)
		if free == nil {
			r.readErr = errNoRoom
			return true
		}
		n, err := syscall.Read(int(fd), free)
		switch err {
		case nil:
			if n == 0 {
				r.readErr = io.EOF
			}
			r.input.w += n
			return true
		case syscall.EINTR:
		case syscall.EAGAIN:
			r.input.park()
			return false
		default:
			r.readErr = os.NewSyscallError("read", err)
			return true
		}
	}
}

// write writes what can be written without waiting.
func (r *raw) write(p []byte) (n int, err error) {
	r.p, r.written, r.writeErr = p, 0, nil
	err = r.out.Write(r.writable)
	r.p = nil
	switch {
	case err == nil:
		err = r.writeErr
	case !errors.Is(err, os.ErrDeadlineExceeded):
		// of files it is an error of package poll, which has no name
		err = os.ErrClosed
	}
	return r.written, err
}

// onWritable returns true always: the caller does not wait.
func (r *raw) onWritable(fd uintptr) bool {
	for r.written < len(r.p) {
		n, err := syscall.Write(int(fd), r.p[r.written:min(len(r.p), r.written+maxWrite)])
		switch err {
		case nil:
			r.written += n
		case syscall.EINTR:
		case syscall.EAGAIN:
			return true
		default:
			r.writeErr = os.NewSyscallError("write", err)
			return true
		}
	}
	return true
}
