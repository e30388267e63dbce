package main

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"
)

// An end is one end of a connection.
type end interface {
	io.ReadWriteCloser
	SetWriteDeadline(time.Time) error
}

// A channel makes connections of one kind.
type channel struct {
	name string
	open func() (client, server end, err error)
}

var channels = []channel{
	{"in-memory pipe", memoryPipe},
	{"os pipe", osPipe},
	{"unix socket", unixSocket},
	{"TCP", func() (end, end, error) { return sockets("tcp", "127.0.0.1:0") }},
}

// pipeEnd joins two one-way pipes.
type pipeEnd struct {
	io.ReadCloser
	w io.WriteCloser
}

func (p pipeEnd) Write(b []byte) (int, error) { return p.w.Write(b) }
func (p pipeEnd) Close() error {
	return errors.Join(p.w.Close(), p.ReadCloser.Close())
}
func (p pipeEnd) SetWriteDeadline(time.Time) error { return nil }

func memoryPipe() (client, server end, err error) {
	toServer, fromClient := io.Pipe()
	toClient, fromServer := io.Pipe()
	return pipeEnd{toClient, fromClient}, pipeEnd{toServer, fromServer}, nil
}

func osPipe() (client, server end, err error) {
	toServer, fromClient, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	toClient, fromServer, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	return pipeEnd{toClient, fromClient}, pipeEnd{toServer, fromServer}, nil
}

func unixSocket() (client, server end, err error) {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return nil, nil, err
	}
	defer os.RemoveAll(dir)
	return sockets("unix", filepath.Join(dir, "socket"))
}

func sockets(network, address string) (client, server end, err error) {
	l, err := net.Listen(network, address)
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	dialled, err := net.Dial(network, l.Addr().String())
	if err != nil {
		return nil, nil, err
	}
	accepted, err := l.Accept()
	if err != nil {
		return nil, nil, errors.Join(err, dialled.Close())
	}
	return dialled.(end), accepted.(end), nil
}
