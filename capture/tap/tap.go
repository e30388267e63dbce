package tap

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"

	"github.com/farcall-dev/farcall/capture"
)

const chunk = 64 << 10

// Pipe forwards what a client writes to a server, and the other way, until both directions have
// ended, and records the frames of both as those of a new connection. The end of one direction is
// forwarded, too, where the transport can express it.
func Pipe(r *capture.Recorder, about *capture.Record, client, server io.ReadWriteCloser) error {
	conn := r.Connect(about)
	var (
		both   sync.WaitGroup
		failed [2]error
	)
	both.Go(func() {
		failed[0] = Forward(server, client, r, conn, true)
		closeWrite(server)
	})
	both.Go(func() {
		failed[1] = Forward(client, server, r, conn, false)
		closeWrite(client)
	})
	both.Wait()
	r.Put(&capture.Record{Type: "conn", Conn: conn, Transport: about.Transport, Closed: true})
	return errors.Join(failed[0], failed[1], client.Close(), server.Close())
}

// Forward copies bytes until in ends, and records their frames as frames of the connection.
func Forward(out io.Writer, in io.Reader, r *capture.Recorder, conn uint64, up bool) error {
	s := &lines{emit: func(data []byte, size int) { r.FrameOf(conn, 0, up, data, size) }}
	defer s.end()
	return forward(out, in, s)
}

// forward copies bytes, and gives them to s just before they are written, so that a request stands
// before its answer.
func forward(out io.Writer, in io.Reader, s io.Writer) error {
	buf := make([]byte, chunk)
	for {
		n, err := in.Read(buf)
		if n > 0 {
			_, _ = s.Write(buf[:n]) // it does not fail
			if _, err := out.Write(buf[:n]); err != nil {
				return err
			}
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrClosedPipe),
			errors.Is(err, net.ErrClosed), errors.Is(err, os.ErrClosed):
			return nil
		default:
			return err
		}
	}
}

// Errors returns a writer that passes what a process writes to its standard error on to out, and
// records it.
func Errors(out io.Writer, r *capture.Recorder, conn uint64) io.Writer {
	return writerFunc(func(p []byte) (int, error) {
		rec := &capture.Record{Type: "stderr", Conn: conn, Size: len(p)}
		rec.SetData(append([]byte(nil), p...))
		r.Put(rec)
		return out.Write(p)
	})
}

type writerFunc func(p []byte) (int, error)

// Write implements io.Writer.
func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// closeWrite tells the other end that nothing more comes, where that is possible. Otherwise it
// closes the connection.
func closeWrite(c io.Closer) {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		if half.CloseWrite() == nil {
			return
		}
	}
	_ = c.Close() // it was used up
}
