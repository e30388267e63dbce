package mock_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/capture"
	"github.com/farcall-dev/farcall/capture/diff"
	"github.com/farcall-dev/farcall/capture/mock"
)

// A pagedServer lists tools in pages. Its cursors begin with a word that only it accepts.
type pagedServer struct {
	tools  []string
	size   int
	word   string
	answer []byte
	asked  int
}

func (s *pagedServer) Send(_ context.Context, frame []byte) error {
	s.asked++
	s.answer = s.call(frame)
	return nil
}

func (s *pagedServer) Receive(context.Context) ([]byte, error) { return s.answer, nil }

func (s *pagedServer) Close() error { return nil }

func (s *pagedServer) call(frame []byte) []byte {
	var request struct {
		ID     json.RawMessage
		Params struct{ Cursor string }
	}
	if err := json.Unmarshal(frame, &request); err != nil {
		panic(err)
	}
	start := 0
	if cursor := request.Params.Cursor; cursor != "" {
		if _, err := fmt.Sscanf(cursor, s.word+"%d", &start); err != nil {
			return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"cursor"}}`,
				request.ID)
		}
	}
	end, next := min(start+s.size, len(s.tools)), ""
	if end < len(s.tools) {
		next = fmt.Sprintf(`,"nextCursor":"%s%d"`, s.word, end)
	}
	var tools []string
	for _, name := range s.tools[start:end] {
		tools = append(tools, fmt.Sprintf(`{"name":%q,"inputSchema":{"type":"object"}}`, name))
	}
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":{"tools":[%s]%s}}`,
		request.ID, strings.Join(tools, ","), next)
}

// listing returns the frames of a client that asks for so many pages at most.
func (s pagedServer) listing(most int) (frames [][2]string) {
	params := ""
	for id := 1; id <= most; id++ {
		request := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/list"%s}`, id, params)
		answer := s.call([]byte(request))
		frames = append(frames, [2]string{"up", request}, [2]string{"down", string(answer)})
		var page struct{ Result struct{ NextCursor string } }
		if err := json.Unmarshal(answer, &page); err != nil {
			panic(err)
		}
		if page.Result.NextCursor == "" {
			break
		}
		params = fmt.Sprintf(`,"params":{"cursor":%q}`, page.Result.NextCursor)
	}
	return frames
}

// A list is compared as a whole: it does not count on which page an entry is, how many pages there
// are, and which cursors a server gives.
func TestPages(t *testing.T) {
	t.Parallel()
	was := pagedServer{tools: []string{"a", "b", "c", "d", "e"}, size: 2, word: "old"}
	for name, test := range map[string]struct {
		is    pagedServer
		most  int  // pages that the client of the capture has read
		exact bool // compare the values, too
		want  []string
		asked int // requests to the server
	}{
		"other pages": {
			pagedServer{tools: []string{"e", "d", "c", "b", "a"}, size: 3, word: "new"}, 9, false, nil, 2,
		},
		"one page": {
			pagedServer{tools: []string{"a", "b", "c", "d", "e"}, size: 9}, 9, true, nil, 1,
		},
		"many pages": {
			pagedServer{tools: []string{"a", "b", "c", "d", "e"}, size: 1, word: "new"}, 9, true, nil, 5,
		},
		"one is missing": {
			pagedServer{tools: []string{"a", "b", "d", "e", "f"}, size: 4, word: "new"}, 9, false, []string{
				"breaking tool-removed result.tools.c", "compatible tool-added result.tools.f",
			}, 2,
		},
		"a part": {
			pagedServer{tools: []string{"x", "a", "b", "c"}, size: 2, word: "new"},
			1, false,
			[]string{"unclear tool-removed result.tools.b"},
			1,
		},
		"all of a part": {
			pagedServer{tools: []string{"x", "a", "c"}, size: 9},
			1, false,
			[]string{"breaking tool-removed result.tools.b"},
			1,
		},
	} {
		compare := diff.New(&diff.Options{Exact: test.exact})
		check := func(how string, report *mock.Report) {
			var got []string
			for _, r := range report.Results {
				for _, f := range r.Findings {
					got = append(got, fmt.Sprint(f.Level, " ", f.Rule, " ", f.Path))
				}
			}
			if len(report.Results) != 1 || !slices.Equal(got, test.want) {
				t.Errorf("%s, %s: %d results, %q, want %q", name, how, len(report.Results), got, test.want)
			}
		}
		frames := was.listing(test.most)
		client, err := mock.LoadClient(record(t, capture.Options{Raw: true}, frames), nil)
		if err != nil {
			t.Fatal(err)
		}
		dial := func(context.Context) (mock.Link, error) { return &test.is, nil }
		report, err := client.Replay(t.Context(), dial, compare)
		if err != nil || test.is.asked != test.asked {
			t.Errorf("%s: %v, %d requests, want %d", name, err, test.is.asked, test.asked)
		}
		check("replay", report)
		var scripts [2]*mock.Script
		for i, frames := range [][][2]string{frames, test.is.listing(test.most)} {
			if scripts[i], err = mock.Load(record(t, capture.Options{Raw: true}, frames), nil); err != nil {
				t.Fatal(err)
			}
		}
		check("diff", mock.Compare(scripts[0], scripts[1], compare))
	}
}

// A server that gives the same cursor again has no end of pages.
func TestPagesWithoutEnd(t *testing.T) {
	t.Parallel()
	loop := &loopServer{}
	was := pagedServer{tools: []string{"a"}, size: 1}
	client, err := mock.LoadClient(record(t, capture.Options{Raw: true}, was.listing(1)), nil)
	if err != nil {
		t.Fatal(err)
	}
	dial := func(context.Context) (mock.Link, error) { return loop, nil }
	_, err = client.Replay(t.Context(), dial, diff.New(nil))
	if err == nil || !strings.Contains(err.Error(), "cursor") || loop.asked != 2 {
		t.Errorf("%v after %d requests", err, loop.asked)
	}
}

type loopServer struct{ pagedServer }

func (s *loopServer) Send(ctx context.Context, frame []byte) error {
	s.tools, s.size, s.word = []string{"a", "a"}, 1, "x"
	if err := s.pagedServer.Send(ctx, frame); err != nil {
		return err
	}
	s.answer = []byte(strings.Replace(string(s.answer), `}]}`, `}],"nextCursor":"x1"}`, 1))
	return nil
}
