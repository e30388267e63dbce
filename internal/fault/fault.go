// Package fault answers one question: what does a program do when its connection misbehaves?
//
// An [Injector] has rules. Each rule applies one fault to frames of one direction: to each nth, or
// with a probability. [Injector.Proxy] copies frames between two byte streams, [Injector.WebSocket]
// between two WebSockets, and [Injector.Handler] between HTTP clients and a server. The same seed
// and the same frames give the same faults.
package fault

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farcall-dev/farcall/internal/glob"
)

// A Direction is that of a frame.
type Direction uint8

// The directions.
const (
	ToClient Direction = iota // what the server sends
	ToServer                  // what the client sends
)

func (d Direction) String() string { return []string{"to the client", "to the server"}[d] }

// A Kind says what a message is.
type Kind uint8

// The kinds. A batch is of the kind of its first message.
const (
	Any Kind = iota
	Request
	Answer
	Notification
)

// kindNames are the kinds as a rule has them.
func kindNames() []string { return []string{"any", "request", "answer", "notification"} }

// Fault describes one fault.
type Fault struct {
	Name string
	Help string
	// To and Of are the frames that it is for, unless a rule says otherwise.
	To Direction
	Of Kind
	// Delay and Size are the defaults of a rule.
	Delay time.Duration
	Size  int
	// fixed: only answers to the client can have it.
	fixed bool
}

// Faults returns all faults in the order of the help.
func Faults() []Fault {
	return []Fault{
		{
			Name: "delay", Help: "the frame, and all behind it, wait for `delay`", Of: Any,
			Delay: time.Second,
		},
		{
			Name: "late", Help: "the frame comes `delay` later; those behind it overtake it", Of: Answer,
			Delay: 2 * time.Second,
		},
		{Name: "drop", Help: "the frame is lost", Of: Any},
		{
			Name: "silence", Help: "the frame and all behind it are lost, and the connection stays open",
			Of: Any,
		},
		{
			Name: "reorder", Help: "the frame comes after the next one, or after `delay`", Of: Any,
			Delay: time.Second,
		},
		{Name: "duplicate", Help: "the frame comes twice", Of: Any},
		{
			Name: "duplicate-id", Help: "the message has the id of the one before", To: ToServer,
			Of: Request,
		},
		{Name: "wrong-id", Help: "the message has an id that does not exist", Of: Answer},
		{Name: "duplicate-member", Help: "the message has a second member id", Of: Answer},
		{Name: "error", Help: "an error takes the place of the answer", Of: Answer, fixed: true},
		{
			Name: "huge", Help: "a result of `size` bytes takes the place of the answer", Of: Answer,
			Size: 16 << 20, fixed: true,
		},
		{
			Name: "garbage", Help: "`size` bytes that are not JSON come before the frame", Of: Any, Size: 64,
		},
		{Name: "bad-utf8", Help: "a byte in the middle of the frame is not UTF-8", Of: Any},
		{Name: "split", Help: "the frame comes in pieces of `size` bytes, with `delay` between, " +
			"characters cut", Of: Any, Size: 7, Delay: time.Millisecond},
		{
			Name: "slow", Help: "the proxy reads nothing for `delay` after the frame", Of: Any,
			Delay: time.Second,
		},
		{Name: "half", Help: "half of the frame comes, then the connection is closed", Of: Any},
		{Name: "close", Help: "the connection is closed in place of the frame", Of: Any},
		{Name: "reset", Help: "the connection is reset in place of the frame", Of: Any},
	}
}

// A Rule applies a fault to some frames. Use [ParseRule], or [New] fills in the defaults of the
// fault.
type Rule struct {
	Fault string
	// To and Of are the frames that it is for; Method is a pattern of methods with * and ?; that of an
	// answer is the method of its request. Default any.
	To     Direction
	Of     Kind
	Method string
	// Every is for each nth of these frames. P is a probability. Default: each frame.
	Every int
	P     float64
	// After leaves so many frames alone at first, and Times bounds how often the rule applies on a
	// connection. Default 0, and 0 for no bound.
	After, Times int
	Delay        time.Duration
	Size         int
}

const maxSize = 1 << 30

// ParseRule reads NAME or NAME:KEY=VALUE,KEY=VALUE…, such as late:every=10,delay=2s.
func ParseRule(text string) (r Rule, err error) {
	name, rest, _ := strings.Cut(text, ":")
	f, ok := find(name)
	if !ok {
		return r, fmt.Errorf("there is no fault %q; there are %s", name, strings.Join(names(), ", "))
	}
	r = Rule{Fault: name, To: f.To, Of: f.Of, Delay: f.Delay, Size: f.Size}
	if rest == "" {
		return r, nil
	}
	for pair := range strings.SplitSeq(rest, ",") {
		key, value, _ := strings.Cut(pair, "=")
		if err := r.set(key, value); err != nil {
			return r, fmt.Errorf("%s: %w", text, err)
		}
	}
	return r, r.check()
}

// set reads one option.
func (r *Rule) set(key, value string) (err error) {
	switch key {
	case "p":
		r.P, err = strconv.ParseFloat(value, 64)
		if err == nil && !(r.P > 0 && r.P <= 1) {
			err = fmt.Errorf("p=%s: a probability is above 0 and at most 1", value)
		}
	case "every":
		r.Every, err = strconv.Atoi(value)
	case "after":
		r.After, err = strconv.Atoi(value)
	case "times":
		r.Times, err = strconv.Atoi(value)
	case "size":
		r.Size, err = strconv.Atoi(value)
	case "delay":
		r.Delay, err = time.ParseDuration(value)
	case "method":
		r.Method = value
	case "to", "of":
		return r.choose(key, value)
	default:
		return fmt.Errorf("there is no option %q; there are p, every, after, times, to, of, method, "+
			"delay and size", key)
	}
	if err != nil && !strings.Contains(err.Error(), "=") {
		err = fmt.Errorf("%s=%s is not a value", key, value)
	}
	return err
}

// choose reads the direction or the kind.
func (r *Rule) choose(key, value string) error {
	words := kindNames()
	if key == "to" {
		words = []string{"client", "server"}
	}
	i := slices.Index(words, value)
	switch {
	case i < 0:
		return fmt.Errorf("%s=%s: use one of %s", key, value, strings.Join(words, ", "))
	case key == "to":
		r.To = Direction(i)
	default:
		r.Of = Kind(i)
	}
	return nil
}

// check returns what is wrong with a rule.
func (r *Rule) check() error {
	f, ok := find(r.Fault)
	switch {
	case !ok:
		return fmt.Errorf("there is no fault %q; there are %s", r.Fault, strings.Join(names(), ", "))
	case r.Every < 0 || r.After < 0 || r.Times < 0 || r.Size < 0 || r.Delay < 0:
		return fmt.Errorf("%s: a negative option", r.Fault)
	case r.Size > maxSize:
		return fmt.Errorf("%s: size is %d at most", r.Fault, maxSize)
	case r.Every > 0 && r.P > 0:
		return fmt.Errorf("%s: use every or p, not both", r.Fault)
	case f.fixed && (r.To != ToClient || r.Of != Answer):
		return fmt.Errorf("%s: only answers to the client can have it", r.Fault)
	}
	return nil
}

func find(name string) (Fault, bool) {
	for _, f := range Faults() {
		if f.Name == name {
			return f, true
		}
	}
	return Fault{}, false
}

func names() (all []string) {
	for _, f := range Faults() {
		all = append(all, f.Name)
	}
	return all
}

// An Event is a fault that was applied.
type Event struct {
	Connection int
	Fault      string
	To         Direction
	Frame      int    // its number in this direction of the connection, from 1 on
	Method     string // of the message, or of the request that it answers
	ID         string // as it was written, before the fault
}

// Options adjust an Injector.
type Options struct {
	// Seed makes the decisions of p, and the bytes of garbage, the same each time. Default 0.
	Seed uint64
	// OnFault is called for each fault, by several goroutines at once. Default none.
	OnFault func(Event)
	// MaxFrame bounds a frame in bytes. Default 64 MiB.
	MaxFrame int
}

// An Injector applies faults to connections. It is safe for concurrent use.
type Injector struct {
	rules    []Rule
	opts     Options
	sessions atomic.Int64 // so many connections were made
}

// New returns an Injector.
func New(rules []Rule, o *Options) (*Injector, error) {
	in := &Injector{rules: slices.Clone(rules)}
	for i := range in.rules {
		r := &in.rules[i]
		if err := r.check(); err != nil {
			return nil, fmt.Errorf("fault: rule %d: %w", i+1, err)
		}
		f, _ := find(r.Fault)
		r.Delay, r.Size = cmp.Or(r.Delay, f.Delay), cmp.Or(r.Size, f.Size)
	}
	in.opts = *cmp.Or(o, &Options{})
	in.opts.MaxFrame = cmp.Or(in.opts.MaxFrame, 64<<20)
	return in, nil
}

// A decider says which faults the frames of one direction of a connection have.
type decider struct {
	rules []Rule

	mu    sync.Mutex
	seen  []int // frames that each rule was for
	done  []int // how often it applied
	dice  []*rand.Rand
	noise *rand.Rand
}

func (in *Injector) decider(connection int, to Direction) *decider {
	d := &decider{rules: in.rules, seen: make([]int, len(in.rules)), done: make([]int, len(in.rules))}
	source := func(n int) *rand.Rand {
		frame := uint64(connection)<<32 | uint64(n)<<1 | uint64(to)
		return rand.New(rand.NewPCG(in.opts.Seed, frame)) //nolint:gosec // faults are to be repeatable
	}
	for i := range in.rules {
		d.dice = append(d.dice, source(i))
	}
	d.noise = source(len(in.rules))
	return d
}

// decide returns the rules that apply to a frame, in their order.
func (d *decider) decide(to Direction, k Kind, method string) (apply []*Rule) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range d.rules {
		r := &d.rules[i]
		if r.To != to || r.Of != Any && r.Of != k || r.Method != "" && !glob.Match(r.Method, method) {
			continue
		}
		d.seen[i]++
		n := d.seen[i] - r.After
		if n <= 0 || r.Times > 0 && d.done[i] >= r.Times {
			continue
		}
		if r.Every > 1 && n%r.Every != 0 || r.P > 0 && d.dice[i].Float64() >= r.P {
			continue
		}
		d.done[i]++
		apply = append(apply, r)
	}
	return apply
}
