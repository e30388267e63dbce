package fault

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Proxy copies frames between two byte streams until one of them ends or the context does, and
// closes both. Frames are lines, or with headers what Content-Length says.
func (in *Injector) Proxy(ctx context.Context, client, server io.ReadWriteCloser,
	headers bool,
) error {
	return in.join(ctx, in.bytePort(client, headers), in.bytePort(server, headers))
}

func (in *Injector) bytePort(c io.ReadWriteCloser, headers bool) *bytePort {
	return &bytePort{
		c: c, in: bufio.NewReaderSize(c, 64<<10), headers: headers, most: in.opts.MaxFrame,
	}
}

// A bytePort is a byte stream.
type bytePort struct {
	c       io.ReadWriteCloser
	in      *bufio.Reader
	headers bool
	most    int
	once    sync.Once
}

func (p *bytePort) read() ([]byte, error) {
	if p.headers {
		return p.readHeaders()
	}
	var frame []byte
	for {
		part, err := p.in.ReadSlice('\n')
		if len(frame)+len(part) > p.most {
			return nil, fmt.Errorf("fault: a frame of more than %d bytes", p.most)
		}
		frame = append(frame, part...)
		if err == bufio.ErrBufferFull { //nolint:errorlint // it is returned as it is
			continue
		}
		line := bytes.TrimRight(frame, "\r\n")
		if len(line) > 0 && (err == nil || err == io.EOF) {
			return line, nil
		}
		if err != nil {
			return nil, err
		}
		frame = frame[:0]
	}
}

func (p *bytePort) readHeaders() ([]byte, error) {
	header, err := textproto.NewReader(p.in).ReadMIMEHeader()
	if err != nil {
		return nil, err
	}
	n, err := strconv.Atoi(header.Get("Content-Length"))
	if err != nil || n < 0 || n > p.most {
		return nil, fmt.Errorf("fault: Content-Length %q: a number up to %d is needed",
			header.Get("Content-Length"), p.most)
	}
	frame := make([]byte, n)
	_, err = io.ReadFull(p.in, frame)
	return frame, err
}

func (p *bytePort) write(ctx context.Context, pause time.Duration, pieces ...[]byte) error {
	total := 0
	for _, piece := range pieces {
		total += len(piece)
	}
	for i, piece := range pieces {
		if i > 0 && !sleep(ctx, pause) {
			return ctx.Err()
		}
		if i == 0 && p.headers {
			piece = append(fmt.Appendf(nil, "Content-Length: %d\r\n\r\n", total), piece...)
		}
		if i == len(pieces)-1 && !p.headers {
			piece = append(slices.Clip(piece), '\n')
		}
		if _, err := p.c.Write(piece); err != nil {
			return err
		}
	}
	return nil
}

func (p *bytePort) half(part []byte) error {
	if p.headers {
		part = append(fmt.Appendf(nil, "Content-Length: %d\r\n\r\n", 2*len(part)+1), part...)
	}
	_, err := p.c.Write(part)
	return err
}

// reset makes the kernel send a reset in place of an orderly end, on TCP.
func (p *bytePort) reset() {
	if tcp, ok := p.c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // then the close resets
	}
	p.close()
}

func (p *bytePort) close() { p.once.Do(func() { _ = p.c.Close() }) }
