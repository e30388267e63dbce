package host

import (
	"testing"

	"github.com/farcall-dev/farcall/mcp"
)

// What Apply takes for unchanged is what it compares: all fields.
func TestServerSame(t *testing.T) {
	s := mcp.NewServer("a", "1", nil)
	full := Server{
		Name: "a", Command: []string{"x"}, Env: map[string]string{"A": "1"}, InheritEnv: []string{"B"},
		Dir: "/", URL: "u", Headers: map[string]string{"H": "1"},
		SSE: true, InProcess: s, Disabled: true, Timeout: 1, AllowTools: []string{"a"},
		DenyTools: []string{"b"},
	}
	if !full.same(full.clone()) {
		t.Error("a copy is not the same")
	}
	for i, change := range []func(*Server){
		func(s *Server) { s.Name = "" }, func(s *Server) {
			s.Command[0] = ""
		}, func(s *Server) { s.Env["A"] = "" }, func(s *Server) { s.InheritEnv[0] = "" },
		func(s *Server) { s.Dir = "" }, func(s *Server) {
			s.URL = ""
		}, func(s *Server) { s.Headers["H"] = "" }, func(s *Server) { s.SSE = false },
		func(s *Server) {
			s.InProcess = nil
		}, func(s *Server) { s.Disabled = false }, func(s *Server) { s.Timeout = 2 },
		func(s *Server) { s.AllowTools[0] = "" }, func(s *Server) { s.DenyTools[0] = "" },
	} {
		other := full.clone()
		if change(other); full.same(other) {
			t.Errorf("change %d is not seen", i)
		}
	}
}
