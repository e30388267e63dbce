package gateway

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/farcall-dev/farcall/internal/cluster"
	sealing "github.com/farcall-dev/farcall/internal/seal"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
)

// Sessions says where the sessions of MCP over HTTP are, as Sessions of [mcphttp.Options] does. It
// takes effect when the gateway is started.
type Sessions struct {
	// Mode is "memory", "sealed" or "none": "sealed" by default with Keys and in a cluster, else
	// "memory".
	Mode string
	// Keys are 32 random bytes each, in base64 or hex, the same for all replicas. The first one seals,
	// each one opens. They also seal what clients of 2026-07-28 carry from round to round. Default in
	// a cluster: one key, which is derived from the secret of the nodes.
	Keys []string
	// Advertise is where the other replicas reach this one: http://10.0.0.3:7331.
	Advertise string
	// MaxAge is how long a session lasts, 7 days by default.
	MaxAge time.Duration
}

var errSessionsFixed = errors.New(
	"gateway: sessions cannot change while the gateway runs: this needs a restart")

// sessionAge is the default of MaxAge.
const sessionAge = 7 * 24 * time.Hour

// mode is Mode with its default. The nodes of a cluster have a key without Keys.
func (s *Sessions) mode(nodes bool) string {
	if s.Mode == "" && (len(s.Keys) > 0 || nodes) {
		return "sealed"
	}
	return cmp.Or(s.Mode, "memory")
}

// keysOf returns the keys for an endpoint: a session of one is invalid at another. Without Keys it
// is that of the nodes, if there is one.
func (s *Sessions) keysOf(endpoint string, nodes []byte) ([][]byte, error) {
	var keys [][]byte
	if len(s.Keys) == 0 && nodes != nil {
		key, err := sealing.Derive(nodes, "endpoint "+endpoint)
		if err != nil {
			return nil, fmt.Errorf("gateway: the key of the nodes: %w", err)
		}
		return append(keys, key), nil
	}
	for i, text := range s.Keys {
		key, err := cluster.ParseKey(text)
		if err == nil {
			key, err = sealing.Derive(key, "endpoint "+endpoint)
		}
		if err != nil {
			return nil, fmt.Errorf("gateway: sessions.keys[%d]: %w", i, err)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// options adds to the options of an endpoint's handler.
func (s *Sessions) options(o *mcphttp.Options, keys [][]byte) *mcphttp.Options {
	o.Sessions, o.Keys, o.Advertise, o.SessionAge = s.Mode, keys, s.Advertise, s.MaxAge
	return o
}

// sessions reads where sessions are.
func (r *reader) sessions(c *Config, n *node, path string) {
	s := &c.Sessions
	r.fields(n, path, map[string]take{
		"mode": r.text(&s.Mode), "advertise": r.text(&s.Advertise), "max_age": r.duration(&s.MaxAge),
		"keys": r.items(func(n *node, path string) {
			var key string
			r.hidden(&key, n, path)
			s.Keys = append(s.Keys, key)
		}),
	})
}

// sessions checks where sessions are.
func (c *checker) sessions(conf *Config) {
	s := &conf.Sessions
	c.choice("sessions.mode", "mode", s.Mode, "memory", "sealed", "none")
	if s.Mode == "sealed" && len(s.Keys) == 0 && !conf.Cluster.Set() {
		c.problem("sessions", "sealed sessions need keys",
			"write keys: [file:session.key], with what `openssl rand -base64 32` prints in the file, the "+
				"same for all replicas")
	}
	for i, text := range s.Keys {
		if _, err := cluster.ParseKey(text); err != nil {
			c.problem(fmt.Sprintf("sessions.keys[%d]", i), err.Error(),
				"`openssl rand -base64 32` prints one")
		}
	}
	u, err := url.Parse(s.Advertise)
	if s.Advertise != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" ||
		u.Scheme+"://"+u.Host != s.Advertise || len(s.Advertise) > 256) {
		c.problem("sessions.advertise",
			c.quote("sessions.advertise", s.Advertise)+" is not the address of a replica",
			"write scheme, host and port only: http://10.0.0.3:7331")
	}
	c.notBefore("sessions.max_age", s.MaxAge)
}
