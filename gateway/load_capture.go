package gateway

import (
	"slices"
	"time"

	"github.com/farcall-dev/farcall/capture"
)

// The values of Config.Capture.Keep.
const (
	keepEnvelopes = "envelopes"
	keepFrames    = "frames"
	keepRaw       = "raw"
)

// recorderOff is a Config.Capture.Recorder.
const recorderOff = "off"

// captureConfig is the type of Config.Capture, for farcall serve: what it records of the calls, on
// both sides of the gateway. Without a file there is the flight recorder: the last 16 MB of a
// minute, in memory.
type captureConfig struct {
	// Recorder turns the flight recorder off: "on" is the default, "off" the other one.
	Recorder string
	// File is what is written: see package capture. A name that ends with .zst is compressed. "":
	// nothing is written. Filter selects what is in it.
	File, Filter string
	// Keep says what is kept of a message: "envelopes", names, ids, sizes, times and outcomes, is the
	// default; "frames" is all of it, without secrets; "raw" is all of it.
	Keep string
	// Secrets are more names of members and paths with secret values.
	Secrets []string
	// MaxSize and MaxAge rotate the file. Files is how many old ones remain, 8 by default.
	MaxSize int64
	MaxAge  time.Duration
	Files   int
	// Dumps is the directory for what the flight recorder writes, and DumpOn says what makes it do so:
	// "error", "tool_error", "slow", a call that takes longer than Slow, "restart" and "refusal".
	// Default: a signal and operators alone, in the cache directory of the user.
	Dumps  string
	DumpOn []string
	Slow   time.Duration
	// Ring bounds the memory of the flight recorder, and Age how far back it goes.
	Ring int64
	Age  time.Duration
}

// Options returns the options of a recorder. They are valid when the configuration is.
func (c *captureConfig) Options() (*capture.Options, error) {
	o := &capture.Options{
		File: c.File, Envelopes: c.Keep == "" || c.Keep == keepEnvelopes, Raw: c.Keep == keepRaw,
		Secrets: c.Secrets, MaxSize: c.MaxSize, MaxAge: c.MaxAge, Keep: c.Files,
		Dir: c.Dumps, DumpOn: c.DumpOn, Slow: c.Slow, Ring: int(c.Ring), Age: c.Age,
	}
	if c.Filter == "" {
		return o, nil
	}
	var err error
	o.Filter, err = capture.ParseFilter(c.Filter)
	return o, err
}

// capture reads what is recorded.
func (r *reader) capture(c *Config, n *node, path string) {
	at := &c.Capture
	r.fields(n, path, map[string]take{
		"recorder": r.text(&at.Recorder), "file": r.path(&at.File), "filter": r.text(&at.Filter),
		"keep": r.text(&at.Keep), "secrets": r.texts(&at.Secrets),
		"max_size": r.sizeTo(&at.MaxSize, 1<<40, "1TiB"), "max_age": r.duration(&at.MaxAge),
		"files": r.count(&at.Files), "dumps": r.path(&at.Dumps), "dump_on": r.oneOrMore(&at.DumpOn),
		"slow": r.duration(&at.Slow), "ring": r.size(&at.Ring), "age": r.duration(&at.Age),
	})
}

// capture checks what is recorded.
func (c *checker) capture(conf *captureConfig) {
	c.choice("capture.recorder", "state", conf.Recorder, "on", recorderOff)
	c.choice("capture.keep", "kind of recording", conf.Keep, keepEnvelopes, keepFrames, keepRaw)
	if _, err := conf.Options(); err != nil {
		c.problem("capture.filter", err.Error(), "farcall view --help describes the language")
	}
	if err := (&capture.Options{DumpOn: conf.DumpOn}).Check(); err != nil {
		c.problem("capture.dump_on", err.Error(), "")
	}
	c.notNegative("capture.files", conf.Files)
	c.notBefore("capture.max_age", conf.MaxAge)
	c.notBefore("capture.slow", conf.Slow)
	c.notBefore("capture.age", conf.Age)
	if conf.Slow == 0 && slices.Contains(conf.DumpOn, "slow") {
		c.problem("capture.slow", "it is missing, and dump_on names slow",
			"write how long a call may take, such as slow: 5s")
	}
	if conf.Recorder == recorderOff && len(conf.DumpOn) > 0 {
		c.problem("capture.recorder", "it is off, and dump_on is for it", "remove one of them")
	}
}
