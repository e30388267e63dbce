//go:build unix

package accept

import (
	"bytes"
	"errors"
	"io"
	"net"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// What the system's connections can do, these can do.
func TestConn(t *testing.T) {
	t.Parallel()
	for network, addr := range map[string]string{
		"tcp":  "127.0.0.1:0",
		"unix": filepath.Join(t.TempDir(), "s"),
	} {
		l := listen(t, network, addr, &Options{Idle: time.Minute})
		far := dial(t, l)
		conn := accept(t, l)
		d, ok := conn.(interface {
			Direct() (syscall.RawConn, error)
			syscall.Conn
			CloseWrite() error
			StopIdle()
			io.ReaderFrom
		})
		if !ok && network == "tcp" {
			t.Fatalf("%s: a method is missing", network)
		}
		buffers := net.Buffers{[]byte("ab"), []byte("cd")}
		if _, err := buffers.WriteTo(conn); err != nil {
			t.Error(err)
		}
		if d != nil {
			raw, err := d.Direct()
			if err != nil {
				t.Fatal(err)
			}
			far.Write([]byte("direct"))
			var got [10]byte
			n := 0
			err = raw.Read(func(fd uintptr) bool {
				n, err = syscall.Read(int(fd), got[:])
				return !errors.Is(err, syscall.EAGAIN)
			})
			if string(got[:n]) != "direct" || err != nil {
				t.Errorf("%q, %v", got[:n], err)
			}
			d.CloseWrite()
		} else {
			conn.(interface{ CloseWrite() error }).CloseWrite()
		}
		if got, err := io.ReadAll(far); string(got) != "abcd" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		far.Write([]byte("copied"))
		far.Close()
		var b bytes.Buffer
		if _, err := io.Copy(&b, conn); b.String() != "copied" || err != nil {
			t.Errorf("%q, %v", b.String(), err)
		}
	}
}
