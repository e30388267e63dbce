package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// notifier tells systemd how the service is doing: sd_notify(3). Nil tells nothing.
type notifier struct {
	conn     *net.UnixConn
	interval time.Duration // of the watchdog; 0: there is none
}

// newNotifier returns the notifier that the environment asks for, nil for none. It removes the
// variables, so that processes that farcall starts do not speak for it.
func newNotifier() (*notifier, error) {
	address := os.Getenv("NOTIFY_SOCKET")
	pid, period := os.Getenv("WATCHDOG_PID"), os.Getenv("WATCHDOG_USEC")
	for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC"} {
		if err := os.Unsetenv(name); err != nil {
			return nil, err
		}
	}
	if address == "" {
		return nil, nil
	}
	if !strings.HasPrefix(address, "/") && !strings.HasPrefix(address, "@") {
		return nil, fmt.Errorf("NOTIFY_SOCKET: %q is neither a path nor an abstract name (@…)", address)
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: address, Net: "unixgram"})
	if err != nil {
		return nil, fmt.Errorf("NOTIFY_SOCKET: %w", err)
	}
	n := &notifier{conn: conn}
	if period != "" && (pid == "" || pid == strconv.Itoa(os.Getpid())) {
		micro, err := strconv.ParseInt(period, 10, 64)
		if err != nil || micro <= 0 || micro > int64(24*time.Hour/time.Microsecond) {
			return nil, errors.Join(fmt.Errorf("WATCHDOG_USEC: %q is not a number of microseconds up to a day", period), conn.Close())
		}
		n.interval = time.Duration(micro) * time.Microsecond / 2
	}
	return n, nil
}

// tell sends a state. What cannot be sent is lost: systemd has a timeout for what it waits for.
func (n *notifier) tell(states ...string) {
	if n != nil {
		_, _ = n.conn.Write([]byte(strings.Join(states, "\n")))
	}
}

// reloading says that the configuration is read again, until the next READY=1.
func (n *notifier) reloading() {
	if at := monotonic(); at > 0 {
		n.tell("RELOADING=1", "MONOTONIC_USEC="+strconv.FormatInt(at.Microseconds(), 10))
	}
}

// watchdog says twice in each period of the watchdog that the process is alive, until the context
// ends.
func (n *notifier) watchdog(ctx context.Context) {
	if n == nil || n.interval == 0 {
		return
	}
	ticker := time.NewTicker(n.interval)
	defer ticker.Stop()
	for {
		n.tell("WATCHDOG=1")
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (n *notifier) close() {
	if n != nil {
		_ = n.conn.Close()
	}
}
