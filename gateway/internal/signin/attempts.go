package signin

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/mcpauth"
	"github.com/farcall-dev/farcall/store"
)

const (
	// linkLife is how long a link may be opened, and flowLife how long the user may take from then on.
	linkLife = 10 * time.Minute
	flowLife = 10 * time.Minute

	maxAttempts = 64 << 20  // bytes of those of one process
	maxAttempt  = 256 << 10 // bytes
	placeSize   = 40        // of the name of a record, and of the attempts of its ID
	ownerSize   = 20        // of what tells owners apart in a name
)

// The attempts of an owner to sign in to an upstream are one record, sealed, which any node opens:
// a link that may be opened, and a user who is at the authorization server.
//
//	(none) ──Link──▶ linked ── the user goes on, on the start page ──▶ opened ── the browser comes back ──▶ (none)
//	                   │                                                 │
//	                   └──────────────── linkLife passed ────────────────┴── flowLife passed ─────────────▶ (none)
//
// Each arrow is a compare-and-swap: the link counts once, and each state counts once.
type attempts struct {
	Owner    []byte  `json:"owner"` // it is not always UTF-8
	Upstream string  `json:"upstream"`
	Name     string  `json:"name"` // of the principal
	Link     string  `json:"link"` // "": none
	Expires  int64   `json:"expires"`
	Opened   *opened `json:"opened,omitzero"`
}

// opened is a sign-in with a user at the authorization server.
type opened struct {
	State   string      `json:"state"`
	Request jsonrpc.Raw `json:"request"` // of mcpauth
	Browser []byte      `json:"browser"` // the digest of its cookie
	Expires int64       `json:"expires"`
}

func (a *attempts) id() ID { return ID{string(a.Owner), a.Upstream} }

// errSame ends update without a write.
var errSame = errors.New("signin: nothing is to be changed")

// update changes the attempts at a place, as one step. An error of do is returned, and nothing is
// changed.
func (s *Service) update(ctx context.Context, place string, do func(*attempts) error) error {
	ctx, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	for {
		r, err := s.attempts.Get(ctx, "sign-in "+place[:ownerSize], place)
		if errors.Is(err, store.ErrNotFound) {
			r, err = &store.Record{Owner: "sign-in " + place[:ownerSize], ID: place}, nil
		}
		if err != nil {
			return fmt.Errorf("signin: %w: %w", ErrStore, err)
		}
		a := &attempts{}
		if text, err := s.opts.Store.box.Open(string(r.Value), place, maxAttempt); err == nil {
			_ = jsonv2.Unmarshal(text, a) // what is sealed is whole
		}
		if err := do(a); err != nil {
			if errors.Is(err, errSame) {
				return nil
			}
			return err
		}
		text, err := jsonv2.Append(nil, a)
		if err != nil {
			return fmt.Errorf("signin: %w", err)
		}
		until := time.Now().Add(max(linkLife, flowLife))
		_, err = s.attempts.Put(ctx, &store.Record{
			Owner: r.Owner, ID: r.ID, Version: r.Version, Expires: until,
			Value: []byte(s.opts.Store.box.Seal(text, place, until)),
		})
		switch {
		case err == nil:
			return nil
		case errors.Is(err, store.ErrFull):
			return ErrFull
		case !errors.Is(err, store.ErrConflict):
			return fmt.Errorf("signin: %w: %w", ErrStore, err)
		}
	}
}

// link returns where a principal begins to sign in. It is the same until it was opened, or was
// about to expire. When the principal has signed in, notify is called with it; it may be nil.
func (s *Service) link(
	ctx context.Context, id ID, name string, notify func(ctx context.Context, url string),
) (string, error) {
	link, place := "", s.opts.Store.Name(id)
	err := s.update(ctx, place, func(a *attempts) error {
		now := time.Now()
		if link = a.Link; link != "" && a.Expires-now.Unix() >= int64(linkLife/2/time.Second) {
			return errSame
		}
		link = place + rand.Text()
		a.Owner, a.Upstream, a.Name = []byte(id.Owner), id.Upstream, name
		a.Link, a.Expires = link, now.Add(linkLife).Unix()
		return nil
	})
	if err != nil {
		return "", err
	}
	link = s.opts.URL + Path + "?link=" + link
	if notify != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if all, _, _ := s.notify.Get(place); len(all) < maxNotified {
			all = append(slices.Clone(all), func(ctx context.Context) { notify(ctx, link) })
			s.notify.Put(owner.Stored(id.Owner, ""), place, all, 1)
		}
	}
	return link, nil
}

// A refusal is an error of what a browser brings.
type refusal string

func (r refusal) Error() string { return string(r) }

// errLink is of a link, and errState of a state that does not count.
const (
	errLink refusal = "this link is not valid: it was opened before, it has expired, or the " +
		"gateway was restarted. Call the tool again for another one"
	errState refusal = "this answer belongs to no sign-in: it was used before, it has expired, or " +
		"the gateway was restarted. Call the tool again to begin another one"
)

// same compares what a browser brings with what was issued, at its place.
func same(brought, issued string) bool {
	return subtle.ConstantTimeCompare([]byte(brought), []byte(issued)) == 1
}

// placeIn returns the place in a link or a state; "" in any other text.
func placeIn(text string) string {
	if len(text) != placeSize+len(rand.Text()) {
		return ""
	}
	return text[:placeSize]
}

// linked returns the attempts of a link.
func (s *Service) linked(ctx context.Context, link, browser string) (*attempts, error) {
	place, is := placeIn(link), &attempts{}
	if place == "" {
		return nil, errLink
	}
	err := s.update(ctx, place, func(a *attempts) error {
		is = a
		if !same(link, a.Link) || time.Now().Unix() >= a.Expires {
			return errLink
		}
		return errSame
	})
	if err == nil {
		err = s.fits(is, browser)
	}
	return is, err
}

// fits reports what is wrong with the browser of an attempt: browser is the owner with the
// credentials that it shows, "" for none.
func (s *Service) fits(a *attempts, browser string) error {
	switch {
	case browser != "" && browser != a.id().Owner:
		return refusal(
			"this sign-in belongs to another principal than the one with the credentials that this " +
				"browser shows")
	case browser == "" && s.opts.Bound:
		return refusal(
			"this browser shows no credentials, and this gateway requires those of the principal for a " +
				"sign-in: a client certificate, or a token that a proxy adds")
	}
	return nil
}

// client returns a client of mcpauth for one sign-in.
func (s *Service) client(a *attempts) (*mcpauth.Client, error) {
	u := s.opts.Find(a.Upstream)
	if u == nil {
		return nil, refusal("the gateway has no upstream " + a.Upstream + " with sign-in any more")
	}
	o := u.opts
	o.Store = s.opts.Store.Tokens(a.id(), a.Name, false)
	return mcpauth.New(u.url, &o)
}

// begin opens an attempt in the browser with a cookie, and returns where that is to go. The link is
// used up.
func (s *Service) begin(
	ctx context.Context, link, browser, cookie string,
) (address string, err error) {
	a, err := s.linked(ctx, link, browser)
	if err != nil {
		return "", err
	}
	c, err := s.client(a)
	if err != nil {
		return "", err
	}
	place := placeIn(link)
	state := place + rand.Text()
	address, request, err := c.Begin(ctx, state)
	if err != nil {
		return "", err
	}
	digest := sha256.Sum256([]byte(cookie))
	err = s.update(ctx, place, func(a *attempts) error {
		if !same(link, a.Link) {
			return errLink
		}
		a.Link, a.Opened = "",
			&opened{
				State: state, Request: request, Browser: digest[:],
				Expires: time.Now().Add(flowLife).Unix(),
			}
		return nil
	})
	return address, err
}

// comeBack takes the browser that comes back to the callback of an upstream. Its state counts once,
// whatever is wrong.
func (s *Service) comeBack(
	ctx context.Context, upstream, state, browser, cookie string, address *url.URL,
) (*attempts, error) {
	place := placeIn(state)
	if place == "" {
		return nil, errState
	}
	var is *attempts
	var flow *opened
	err := s.update(ctx, place, func(a *attempts) error {
		if a.Opened == nil || !same(state, a.Opened.State) {
			return errState
		}
		is, flow, a.Opened = a, a.Opened, nil
		return nil
	})
	if err != nil {
		return nil, err
	}
	digest := sha256.Sum256([]byte(cookie))
	err = s.fits(is, browser)
	switch {
	case err != nil:
	case is.Upstream != upstream:
		err = refusal("this answer belongs to a sign-in to another upstream")
	case !same(string(digest[:]), string(flow.Browser)):
		err = refusal("this sign-in began in another browser. Do not use a link that was sent to you")
	case time.Now().Unix() >= flow.Expires:
		err = refusal("this sign-in has expired. Call the tool again to begin another one")
	}
	if err != nil {
		return nil, err
	}
	c, err := s.client(is)
	if err != nil {
		return nil, err
	}
	err = c.Finish(ctx, flow.Request, address)
	s.log(is, err)
	if err != nil {
		return nil, err
	}
	s.signedIn(is.id())
	return is, nil
}
