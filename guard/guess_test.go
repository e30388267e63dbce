package guard_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/guard"
)

// Passwords can be guessed: after too many wrong ones the program is not asked any more, so that a
// right one is not found either. Others behind the same address, who are known, go on.
func TestPasswordGuessing(t *testing.T) {
	now := newClock()
	asked := 0
	o := &guard.Options{Now: now.Now, Authenticate: func(r *http.Request) (*guard.Principal, error) {
		user, password, ok := r.BasicAuth()
		switch {
		case !ok:
			return nil, nil //nolint:nilnil // it has nothing to say
		case password == "right-"+user:
			return &guard.Principal{ID: user, Kind: "user", Method: "password"}, nil
		}
		asked++
		return nil, errors.New("wrong password")
	}}
	s := newSite(t, &guard.Config{Keys: []guard.Key{keyOf("ci", goodKey)}}, o)
	try := func(user, password string) *reply {
		r := s.request("who", "")
		r.SetBasicAuth(user, password)
		return s.do(r)
	}
	try("bob", "right-bob").wants(t, "user bob by password")
	s.call("who", "", asCI).wants(t, "service ci by key")
	for range 200 {
		try("ada", "wrong")
	}
	if asked != 20 {
		t.Errorf("the program was asked %d times", asked)
	}
	got := try("ada", "right-ada")
	if got.status != http.StatusTooManyRequests || got.code != limited ||
		got.header.Get("Retry-After") == "" {
		t.Errorf("a right guess is recognizable: %d %s", got.status, got.body)
	}
	try("bob", "right-bob").wants(t, "user bob by password")
	s.call("who", "", asCI).wants(t, "service ci by key")
	try("bob", "wrong").wants(t, limited)
	now.add(time.Minute)
	try("ada", "right-ada").wants(t, "user ada by password")
	for range 30 {
		try("ada", "wrong")
	}
	if asked > 31 {
		t.Errorf("the program was asked %d times in another minute", asked)
	}
}

// Who was known is held up as others are once its credentials are refused.
func TestPasswordNoLongerRight(t *testing.T) {
	now := newClock()
	password := "first"
	o := &guard.Options{Now: now.Now, Authenticate: func(r *http.Request) (*guard.Principal, error) {
		if user, given, _ := r.BasicAuth(); given == password {
			return &guard.Principal{ID: user, Kind: "user", Method: "password"}, nil
		}
		return nil, errors.New("wrong password")
	}}
	s := newSite(t, &guard.Config{}, o)
	try := func(password string) *reply {
		r := s.request("who", "")
		r.SetBasicAuth("ada", password)
		return s.do(r)
	}
	try("first").wants(t, "user ada by password")
	for range 30 {
		try("wrong")
	}
	password = "second"
	try("first").wants(t, unauthenticated)
	try("first").wants(t, limited)
	try("second").wants(t, limited)
}
