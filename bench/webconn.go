package main

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// acceptBoth is what clients of Streamable HTTP accept.
const acceptBoth = "application/json, text/event-stream"

// request is the text of a POST.
func (c *webConn) request(body string, headers map[string]string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nAccept: %s\r\n",
		cmp.Or(c.path, "/mcp"), c.RemoteAddr(), acceptBoth)
	for _, all := range []map[string]string{headers, c.extra} {
		for _, name := range slices.Sorted(maps.Keys(all)) {
			b.WriteString(name + ": " + all[name] + "\r\n")
		}
	}
	fmt.Fprintf(&b, "Content-Length: %d\r\n\r\n%s", len(body), body)
	return b.Bytes()
}

// A webConn is a connection to an HTTP server. net/http's client takes as much
// time as a server, and would hide what servers differ in.
type webConn struct {
	net.Conn
	in   *bufio.Reader
	body []byte

	path    string            // "": /mcp
	extra   map[string]string // headers of every request
	status  int               // of the last answer
	session string            // the last one that was begun
	used    time.Time
}

func dialWeb(address string) (*webConn, error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	return &webConn{Conn: conn, in: bufio.NewReader(conn), used: time.Now()}, nil
}

// refresh connects again when it has not been used for so long that the server
// may have closed it. Node.js does after five seconds.
func (c *webConn) refresh() error {
	if time.Since(c.used) < 3*time.Second {
		return nil
	}
	again, err := dialWeb(c.RemoteAddr().String())
	if err != nil {
		return err
	}
	c.Close()
	*c = *again
	return nil
}

// openSession begins a session, if the server has them, and returns the
// headers of what belongs to it.
func (c *webConn) openSession(revision string) (map[string]string, error) {
	c.session = ""
	if _, err := c.exchange(
		c.request(strings.Replace(initialize, legacyRevision, revision, 1), nil)); err != nil {
		return nil, err
	}
	headers := map[string]string{"MCP-Protocol-Version": revision}
	if c.session != "" {
		headers["Mcp-Session-Id"] = c.session
	}
	_, err := c.exchange(c.request(initialized, headers))
	return headers, err
}

// call makes a call and looks at the answer. The echo's is the call.
func (c *webConn) call(request []byte) ([]byte, error) {
	body, err := c.exchange(request)
	if err == nil && !isCallResult(body) && !bytes.HasSuffix(request, body) {
		err = fmt.Errorf("answered %q", body)
	}
	return body, err
}

// exchange sends a request and reads the answer's body, which is valid until
// the next one.
func (c *webConn) exchange(request []byte) ([]byte, error) {
	if _, err := c.Write(request); err != nil {
		return nil, err
	}
	length, err := c.readHead()
	if err != nil {
		return nil, err
	}
	c.body = c.body[:0]
	if length >= 0 {
		err = c.readPart(length)
	} else {
		err = c.readChunks()
	}
	if err == nil && c.status/100 != 2 {
		err = fmt.Errorf("answered %d: %s", c.status, c.body)
	}
	return c.body, err
}

// readHead reads the head of an answer and returns the length of its body, or
// -1 when it comes in chunks.
func (c *webConn) readHead() (length int, err error) {
	line, err := c.in.ReadSlice('\n')
	if err != nil {
		return 0, err
	}
	if len(line) < len("HTTP/1.1 200") {
		return 0, fmt.Errorf("answered %q", line)
	}
	c.status, err = strconv.Atoi(string(line[len("HTTP/1.1 "):len("HTTP/1.1 200")]))
	for err == nil {
		if line, err = c.in.ReadSlice('\n'); err != nil || len(line) <= len("\r\n") {
			break
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimSpace(value)
		switch {
		case bytes.EqualFold(name, []byte("Content-Length")):
			length, err = strconv.Atoi(string(value))
		case bytes.EqualFold(name, []byte("Transfer-Encoding")):
			length = -1
		case bytes.EqualFold(name, []byte("Mcp-Session-Id")):
			c.session = string(value)
		}
	}
	return length, err
}

func (c *webConn) readPart(n int) error {
	old := len(c.body)
	c.body = append(c.body, make([]byte, n)...)
	_, err := io.ReadFull(c.in, c.body[old:])
	return err
}

func (c *webConn) readChunks() error {
	for {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return err
		}
		n, err := strconv.ParseUint(string(bytes.TrimSpace(line)), 16, 31)
		if err != nil {
			return err
		}
		if err := c.readPart(int(n)); err != nil {
			return err
		}
		if _, err := c.in.Discard(len("\r\n")); err != nil || n == 0 {
			return err
		}
	}
}
