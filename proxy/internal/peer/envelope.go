// Package peer carries a turn from the replica that a client reached to the one
// that has the session: one signed request, one hop, and an outcome that says
// exactly what the sender may do next.
//
// A turn counts as dispatched from the moment in which the last byte of its body
// may have left: the receiver does nothing before it has checked all of it.
// Until then the sender can serve the turn itself; afterwards never.
package peer

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/textproto"
	"slices"
	"strings"

	"github.com/causeway-dev/causeway/proxy/internal/affinity"
	"github.com/causeway-dev/causeway/proxy/internal/bridge"
	"github.com/causeway-dev/causeway/proxy/internal/upstream"
)

// turnPath names the version of the protocol: a receiver that does not know it
// answers without having read the body.
const turnPath = "/peer/v1/turn"

// Headers between replicas. The data port drops them from what clients send.
const (
	headerPrefix    = "X-Causeway-Peer-"
	envelopeHeader  = headerPrefix + "Envelope"
	signatureHeader = headerPrefix + "Signature"
	outcomeHeader   = headerPrefix + "Outcome"
	reasonHeader    = headerPrefix + "Reason"
)

// signedContext keeps a signature from meaning anything elsewhere.
const signedContext = "causeway peer turn 1\n"

// maxHops is how often a turn may change replicas.
const maxHops = 1

// Envelope is what the receiver is told of a turn besides its body and the
// client's own headers, both of which it seals.
type Envelope struct {
	// Request is the request id; the answer carries it.
	Request string `json:"request"`
	// Client is the name of the client's key, the scope of its sessions.
	Client string `json:"client"`
	Route  string `json:"route"`
	Stream bool   `json:"stream"`
	// Socket names the client's WebSocket; empty = it has none.
	Socket string `json:"socket,omitempty"`
	// Key is affinity.Key.Name of the session.
	Key string `json:"key"`
	// Origin and Target are pods. An empty Target is a replica that the origin
	// knows only by Address, host:port.
	Origin  string `json:"origin"`
	Target  string `json:"target,omitempty"`
	Address string `json:"address"`
	// Hops counts this one.
	Hops int `json:"hops"`
	// HeaderDigest and BodyDigest are SHA-256 in hex.
	HeaderDigest string `json:"header"`
	BodyDigest   string `json:"body"`
	BodyBytes    int64  `json:"bytes"`
	// Tail is the response that the turn builds on: a receiver without authority takes
	// it only if it knows that one. Empty = none.
	Tail string `json:"tail,omitempty"`
	// Budget is what is left of the turn's time, as deadline.Budget.Header writes it;
	// empty = it has no end.
	Budget string `json:"budget,omitempty"`
}

var errUnsigned = errors.New("the signature is missing, of an unknown key or wrong")

// sign returns the two headers of a request.
func (e Envelope) sign(key []byte) (envelope, signature string, err error) {
	raw, err := json.Marshal(e)
	if err != nil {
		return "", "", fmt.Errorf("encoding the envelope: %w", err)
	}
	mac := base64.RawURLEncoding.EncodeToString(authenticate(key, raw))
	return base64.RawURLEncoding.EncodeToString(raw), keyID(key) + "." + mac, nil
}

// openEnvelope reads what one of keys has signed. Nothing of an envelope is
// looked at before its signature is.
func openEnvelope(h http.Header, keys [][]byte) (Envelope, error) {
	raw, err := base64.RawURLEncoding.DecodeString(h.Get(envelopeHeader))
	id, text, ok := strings.Cut(h.Get(signatureHeader), ".")
	if err != nil || !ok {
		return Envelope{}, errUnsigned
	}
	signature, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return Envelope{}, errUnsigned
	}
	for _, key := range keys {
		if keyID(key) == id && hmac.Equal(authenticate(key, raw), signature) {
			var e Envelope
			if err := json.Unmarshal(raw, &e); err != nil {
				return Envelope{}, fmt.Errorf("decoding the envelope: %w", err)
			}
			return e, nil
		}
	}
	return Envelope{}, errUnsigned
}

func authenticate(key, raw []byte) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(signedContext))
	mac.Write(raw)
	return mac.Sum(nil)
}

// keyID tells keys apart and says nothing about them.
func keyID(key []byte) string {
	sum := sha256.Sum256(append([]byte("causeway peer key id\n"), key...))
	return hex.EncodeToString(sum[:4])
}

func digestOf(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}

// travelling is what of a client's header goes with its turn: what may reach an
// upstream, and the token by which the bridge knows a conversation again. The
// client's credentials stay.
func travelling(h http.Header) http.Header {
	out := upstream.RequestHeader(h)
	if token := h.Values(affinity.TurnStateHeader); len(token) > 0 {
		out[affinity.TurnStateHeader] = token
	}
	if agents := out["User-Agent"]; len(agents) > 1 {
		out["User-Agent"] = agents[:1] // net/http sends one,
	}
	if out.Get("User-Agent") == "" {
		delete(out, "User-Agent") // and no empty one
	}
	return out
}

// headerDigest is the same for equal headers, in whatever order their names came.
func headerDigest(h http.Header) string {
	sum := sha256.New()
	frame := func(s string) {
		var size [8]byte
		binary.BigEndian.PutUint64(size[:], uint64(len(s)))
		sum.Write(size[:])
		sum.Write([]byte(s))
	}
	for _, name := range slices.Sorted(maps.Keys(h)) {
		for _, value := range h[name] {
			frame(name)
			frame(textproto.TrimString(value)) // as it is sent
		}
	}
	return hex.EncodeToString(sum.Sum(nil))
}

var routeNames = map[bridge.Route]string{bridge.RouteV1: "v1", bridge.RouteCodex: "codex"}

func routeOf(name string) (bridge.Route, bool) {
	for r, n := range routeNames {
		if n == name {
			return r, true
		}
	}
	return 0, false
}
