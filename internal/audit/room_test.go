package audit

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall/internal/owner"
)

// sizes returns the bytes of a file and of each before it.
func sizes(t *testing.T, path string) (all []int64, sum int64) {
	t.Helper()
	names, err := Files(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		all, sum = append(all, info.Size()), sum+info.Size()
	}
	return all, sum
}

// fill has calls of an owner allowed until one is refused, and returns how many were.
func fill(t *testing.T, l *Log, o owner.Key) (n int, err error) {
	t.Helper()
	for {
		seq, err := l.Write(o, example())
		if err != nil {
			return n, err
		}
		l.End(&Outcome{Of: seq, Status: "ok"})
		if n++; n > 1_000_000 {
			t.Fatal("the store is never full")
		}
	}
}

// One owner fills the store with calls that are allowed, in a burst or slowly: it is refused, and
// others still call, each of them, until files are moved away.
func TestOwnersShareTheStore(t *testing.T) {
	t.Parallel()
	for _, pause := range []time.Duration{0, time.Second} {
		t.Run(fmt.Sprint("pause ", pause), func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "audit.log")
			synctest.Test(t, func(t *testing.T) {
				l := open(t, &Options{File: path, MaxSize: 100_000, Keep: 3})
				bob, many := owner.Named("bob"), 0
				for {
					seq, err := l.Write(bob, example())
					if err != nil {
						if !errors.Is(err, ErrFull) {
							t.Error(err)
						}
						break
					}
					l.End(&Outcome{Of: seq, Status: "ok"})
					many++
					<-time.After(pause)
				}
				for i := range 20 {
					o := owner.Named(fmt.Sprint("ada ", i))
					if seq, err := l.Write(o, example()); err != nil {
						t.Errorf("%d calls of one owner: a call of another one is refused: %v", many, err)
					} else {
						l.End(&Outcome{Of: seq, Status: "ok"})
					}
				}
				if _, err := l.Write(bob, example()); !errors.Is(err, ErrFull) {
					t.Errorf("the owner that has most is not refused: %v", err)
				}
				<-time.After(time.Second)
				if err := errors.Join(os.Remove(path+".3"), os.Remove(path+".2")); err != nil {
					t.Fatal(err)
				}
				_, _ = l.Write(bob, example()) // it makes the log look
				<-time.After(time.Second)
				if err := write(l); err != nil {
					t.Error(err)
				}
				if again, err := fill(t, l, bob); again < many/4 || !errors.Is(err, ErrFull) {
					t.Errorf("half of the store is free, and %d of %d calls are allowed: %v", again, many, err)
				}
				if err := l.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A store is not larger than it may be, however many calls come before the first is written, and
// with the outcomes of all.
func TestStoreIsNotOverrun(t *testing.T) {
	t.Parallel()
	for _, keep := range []int{-1, 2} {
		path := filepath.Join(t.TempDir(), "audit.log")
		const size = 200_000
		l := open(t, &Options{File: path, MaxSize: size, Keep: keep})
		var seqs []uint64
		for i := range 10_000 {
			if seq, err := l.Write(owner.Named(fmt.Sprint(i%50)), example()); err == nil {
				seqs = append(seqs, seq)
			}
		}
		if len(seqs) < size/2000 {
			t.Errorf("%d calls have filled the store", len(seqs))
		}
		for _, seq := range seqs {
			l.End(&Outcome{
				Of: seq, Status: "error", Error: -2147483648, Duration: time.Hour,
				Request: 1 << 30, Result: 1 << 30,
			})
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		all, sum := sizes(t, path)
		for _, n := range all {
			if n > size+2000 {
				t.Errorf("files of %d bytes", all)
			}
		}
		if most := int64(size * (max(keep, 0) + 1)); sum > most {
			t.Errorf("%d bytes of %d", sum, most)
		}
		if r := verify(t, path, nil); len(r.Findings) > 0 || r.Open != 0 {
			t.Errorf("%+v", r)
		}
	}
}

// The last owner to come has room, however many came before, and the sessions of an address are one
// owner.
func TestStoreIsFair(t *testing.T) {
	t.Parallel()
	const total = 10_000_000
	s := &store{}
	s.limit(bounds{max: total / 10, keep: 9})
	r := rand.New(rand.NewPCG(1, 2))
	take := func(o owner.Key) (all int) {
		for {
			n := 1 + r.IntN(1000)
			if s.fits(o, n, 0) != nil {
				return all
			}
			s.charge(o, n)
			s.report(s.used+n, n)
			all += n
		}
	}
	if got := take(owner.Session("first", "192.0.2.1")); got < total*85/100 || got > total*90/100 {
		t.Errorf("one owner gets %d of %d", got, total)
	}
	if got := take(owner.Session("second", "192.0.2.1")); got > 1000 {
		t.Errorf("another session of the same address gets %d", got)
	}
	if got := take(owner.Named("late")); got < total*8/100 {
		t.Errorf("another owner gets %d", got)
	}
	for i := range 2 {
		if got := take(owner.Named(fmt.Sprint(i))); got < 1000 {
			t.Errorf("owner %d gets %d", i, got)
		}
	}
	if s.used+eventRoom > total {
		t.Errorf("%d bytes of %d", s.used, total)
	}
}

// What is known of owners is bounded, and those who have most are not forgotten.
func TestStoreForgetsSmallOwners(t *testing.T) {
	t.Parallel()
	s := &store{}
	s.limit(bounds{max: 1 << 40})
	bob := owner.Named("bob")
	s.charge(bob, 1<<30)
	for i := range 5 * maxAccounts {
		s.charge(owner.Named(fmt.Sprint(i)), 500)
		if n := len(s.accounts); n > maxAccounts {
			t.Fatalf("%d accounts", n)
		}
	}
	if s.accounts[bob] != 1<<30 {
		t.Errorf("the owner with most has %d", s.accounts[bob])
	}
	for i := range 5 * maxAccounts {
		s.charge(owner.Named(fmt.Sprint("equal ", i)), 1<<30)
	}
	if n := len(s.accounts); n > maxAccounts {
		t.Errorf("%d accounts of equal owners", n)
	}
}
