package session

import (
	"net/http"
	"testing"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/config"
	"github.com/causeway-dev/causeway/proxy/internal/upstream"
)

// seeing notes the header that goes with a plain request.
type seeing struct {
	*fakeDialer
	header *http.Header
}

func (s seeing) HTTP(t upstream.Target) upstream.Conn {
	*s.header = t.Header
	return s.fakeDialer.HTTP(t)
}

// The upstream has no contract for the key, and one request may be several there.
func TestAnIdempotencyKeyStaysHere(t *testing.T) {
	var seen http.Header
	o := ofAll("a")
	o.services = func(s *Services) {
		plain := s.Dialer(nil).(*fakeDialer)
		s.Dialer = func(*config.Runtime) Dialer { return seeing{plain, &seen} }
	}
	o.provider = bundle.ProviderOpenAIPlatform
	inBubbleOf(t, o, func(b *bench) {
		turn := b.ask("", body).Turn // no session: by HTTP
		turn.Header.Set("Idempotency-Key", "k")
		again := &Turn{ID: "again", Header: http.Header{"Idempotency-Key": {"k"}, "User-Agent": {"u"}}, Body: []byte(body), Facts: turn.Facts, Runtime: b.runtime,
			Key: turn.Key, Transport: HTTP, Out: NewOutbox(), Limits: turn.Limits}
		defer b.registry.Submit(again)()
		pass(0)
		if seen == nil || seen.Get("Idempotency-Key") != "" || seen.Get("User-Agent") != "u" {
			t.Fatalf("%v", seen)
		}
	})
}
