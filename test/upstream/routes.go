package upstream

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gorilla/websocket"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"
)

// ServeHTTP answers every route of the simulated service.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !s.enter() {
		return
	}
	defer s.handler.Done()
	switch {
	case strings.HasPrefix(r.URL.Path, "/_"):
		s.admin(w, r)
	case isIssuerPath(r.URL.Path):
		s.serveIssuer(w, r)
	default:
		s.data(w, r)
	}
}

// data serves what needs a bearer token.
func (s *Server) data(w http.ResponseWriter, r *http.Request) {
	proto := request{
		received: time.Now(), transport: TransportHTTP, path: r.URL.Path, mode: s.modeOf(r.URL.Path), conn: connNumber(r),
		client: r.RemoteAddr, headers: r.Header,
	}
	account, refusal := s.authenticate(r)
	proto.account = account
	if t := connOf(r); t != nil {
		s.ledger.update(func() {
			t.record.Requests++
			t.record.Account, t.record.Path = account, r.URL.Path
		})
	}
	responses := r.URL.Path == "/v1/responses" || r.URL.Path == "/backend-api/codex/responses"
	switch {
	case refusal != nil:
		s.deny(w, r, proto, routeOf(r.URL.Path), refusal)
	case responses && websocket.IsWebSocketUpgrade(r):
		s.openSocket(w, r, proto)
	case responses && r.Method == http.MethodPost:
		s.create(w, r, proto)
	default:
		s.other(w, r, proto, routeOf(r.URL.Path))
	}
}

func (s *Server) modeOf(path string) Mode {
	mode := s.opts.Mode
	if m := s.director.get().Mode; m != ModeByPath {
		mode = m
	}
	switch {
	case mode != ModeByPath:
		return mode
	case strings.HasPrefix(path, "/backend-api/"):
		return ModeChatGPT
	default:
		return ModePlatform
	}
}

// authenticate names the account of a bearer token.
func (s *Server) authenticate(r *http.Request) (string, *apiError) {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok || token == "" {
		return "", wrongKey()
	}
	if name, known, err := s.issuer.account(token); known {
		return name, err
	}
	if name, known := s.opts.Accounts[token]; known {
		return name, nil
	}
	accounts := s.director.get().Accounts
	for _, a := range accounts {
		if a.Token == token {
			return a.Name, nil
		}
	}
	if len(s.opts.Accounts)+len(accounts) > 0 {
		return "", wrongKey()
	}
	return "token-" + Digest([]byte(token))[:8], nil
}

// create is POST /responses.
func (s *Server) create(w http.ResponseWriter, r *http.Request, req request) {
	raw, body, err := readBody(r)
	req.wire, req.body = len(raw), body
	if err != nil {
		s.deny(w, r, req, RouteResponses, badRequest("invalid_body", err.Error(), ""))
		return
	}
	if refusal := req.parse(); refusal != nil {
		s.deny(w, r, req, RouteResponses, refusal)
		return
	}
	k := newHTTPSink(w, r, req.stream)
	t := s.newTurn(&req, k)
	t.run(r.Context())
	if t.outcome == OutcomeMuted || t.outcome == OutcomeCancelled {
		k.cut(cutFin, 0, "") // net/http would end the body as if it were whole
	}
}

// openSocket is the upgrade, which a script can spoil.
func (s *Server) openSocket(w http.ResponseWriter, r *http.Request, proto request) {
	rule, _ := s.director.pick(facts{account: proto.account, route: RouteUpgrade, path: proto.path, transport: TransportWS})
	if rule == nil || rule.Fault == nil {
		s.upgrade(w, r, proto, nil)
		return
	}
	switch f := rule.Fault; f.Action {
	case ActNoPong:
		s.upgrade(w, r, proto, func(k *socket) { k.silent.Store(true) })
	case ActWSClose:
		s.upgrade(w, r, proto, func(k *socket) { k.close(closeCode(f), f.Reason) })
	default:
		if s.spoil(w, r, proto, RouteUpgrade, f) {
			return
		}
		s.upgrade(w, r, proto, nil)
	}
}

// readBody returns the body as it came and decoded.
func readBody(r *http.Request) (raw, decoded []byte, err error) {
	raw, err = io.ReadAll(io.LimitReader(r.Body, maxBody))
	if err != nil {
		return raw, nil, errors.New("the body ended early")
	}
	var dec io.Reader
	switch enc := r.Header.Get("Content-Encoding"); enc {
	case "", "identity":
		return raw, raw, nil
	case "zstd":
		z, zerr := zstd.NewReader(bytes.NewReader(raw))
		if zerr != nil {
			return raw, nil, errors.New("the body is not zstd")
		}
		defer z.Close()
		dec = z
	case "gzip":
		dec, err = gzip.NewReader(bytes.NewReader(raw))
	case "deflate":
		dec, err = zlib.NewReader(bytes.NewReader(raw))
	default:
		return raw, nil, errors.New("unknown content encoding " + enc)
	}
	if err == nil {
		decoded, err = io.ReadAll(io.LimitReader(dec, maxBody))
	}
	if err != nil {
		return raw, nil, errors.New("the body is not what its content encoding says")
	}
	return raw, decoded, nil
}

// credentials are headers that no record may hold.
var credentials = []string{"authorization", "proxy-authorization", "cookie", "x-api-key", "api-key"}

func safeHeaders(h http.Header) map[string]string {
	out := make(map[string]string, len(h))
	for name := range maps.Keys(h) {
		if name := strings.ToLower(name); !slices.Contains(credentials, name) {
			out[name] = strings.Join(h.Values(name), ", ")
		}
	}
	return out
}
