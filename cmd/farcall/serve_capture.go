package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/farcall-dev/farcall/capture"
	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/observe"
	"github.com/farcall-dev/farcall/observe/levels"
)

// recorderOff is what turns the flight recorder off.
const recorderOff = "off"

// captureFlags are what serve records of the calls. A nil recorder records nothing.
type captureFlags struct {
	captureFile, captureKeep string

	recorder *capture.Recorder
}

func (f *captureFlags) registerCapture(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.captureFile, "capture", "",
		"record the calls in this `file`, as 'farcall view' reads it; of a gateway on both sides (default: file of the key capture)")
	flags.StringVar(&f.captureKeep, "capture-keep", "",
		"what is recorded of a message: envelopes (names, ids, sizes, times), frames (all of it, without secrets) or raw (default envelopes)")
}

// record opens what records the calls, as flags and a configuration say. A gateway has the flight
// recorder in any case.
func (f *captureFlags) record(c *gateway.Config, log *slog.Logger, isGateway bool) error {
	conf := c.Capture
	if f.captureFile != "" {
		conf.File = f.captureFile
	}
	switch f.captureKeep {
	case "", "envelopes", "frames", "raw":
	default:
		return usagef("Write --capture-keep envelopes, frames or raw.", "--capture-keep: there is no kind of recording %q", f.captureKeep)
	}
	if f.captureKeep != "" {
		conf.Keep = f.captureKeep
	}
	if conf.File == "" && (!isGateway || conf.Recorder == recorderOff) {
		return nil
	}
	o, err := conf.Options()
	if err != nil {
		return err
	}
	if isGateway && conf.Recorder != recorderOff && o.Dir == "" {
		o.Dir = dumpDirectory()
	}
	if o.File == "" && o.Dir == "" {
		return nil // dumps have no place
	}
	to := orDiscard(log).With(levels.Key, "gateway")
	o.Program = "farcall serve"
	o.OnError = func(err error) { to.Warn("the calls cannot be recorded", "error", err.Error()) }
	o.OnDump = func(why, path string) { to.Info("the flight recorder was written", "cause", why, "file", path) }
	if f.recorder, err = capture.New(o); err != nil {
		return unreadable("the capture", o.File, err)
	}
	return nil
}

// dumpDirectory is where dumps are when the configuration does not say it. "": there is no such
// place.
func dumpDirectory() string {
	if dir := os.Getenv("STATE_DIRECTORY"); dir != "" { // of systemd
		return filepath.Join(filepath.SplitList(dir)[0], "captures")
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "farcall", "captures")
}

// recording returns the observer that records the calls; nil: there is none.
func (f *captureFlags) recording() *observe.Observer {
	if f.recorder == nil {
		return nil
	}
	return f.recorder.Observer()
}

// dropped yields how many frames the recorder has lost. It is an iter.Seq.
func (f *captureFlags) dropped(yield func(observe.Reading) bool) {
	if f.recorder == nil {
		return
	}
	yield(observe.Reading{Name: "farcall_capture_dropped_total", Value: float64(f.recorder.Dropped())})
}

// dump writes what the flight recorder has when a signal asks for it.
func (f *captureFlags) dump(stderr io.Writer) {
	if f.recorder == nil {
		fmt.Fprintln(stderr, "farcall: there is no flight recorder: a gateway has one")
		return
	}
	path, err := f.recorder.Dump("signal")
	if err != nil {
		fmt.Fprintf(stderr, "farcall: the flight recorder could not be written: %s\n", tame(err.Error()))
		return
	}
	fmt.Fprintf(stderr, "farcall: the flight recorder is in %s\n", tame(path))
}

// dumper writes what the flight recorder has for an operator. Nil: there is none.
func (f *captureFlags) dumper() func(string) (string, error) {
	if f.recorder == nil {
		return nil
	}
	return f.recorder.Dump
}

// endRecord writes the end of the capture.
func (f *captureFlags) endRecord() error {
	if f.recorder == nil {
		return nil
	}
	return f.recorder.Close()
}
