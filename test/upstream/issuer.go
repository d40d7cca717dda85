package upstream

import (
	"encoding/base64"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// issuer is an OAuth server whose refresh tokens rotate and serve once. A
// second use of one revokes its whole family, as if it had been stolen.
type issuer struct {
	mu      sync.Mutex
	conf    OAuth
	first   string                    // account of the device flow
	refresh map[string]*refreshToken  // every refresh token ever given out
	access  map[string]accessToken    // every access token ever given out
	devices map[string]*pendingDevice // by device id
	codes   map[string]string         // authorization code -> account
	current map[string]string         // account -> its valid refresh token
	held    int                       // requests that a fault holds
}

type family struct {
	account string
	plan    string
	revoked bool
	rounds  int // tokens given
	asked   int // refresh tokens that were presented, in whatever state
}

type refreshToken struct {
	family *family
	used   bool
}

type accessToken struct {
	family  *family
	expires time.Time
}

type pendingDevice struct {
	userCode string
	polls    int
}

func newIssuer() *issuer {
	return &issuer{
		refresh: map[string]*refreshToken{}, access: map[string]accessToken{}, devices: map[string]*pendingDevice{},
		codes: map[string]string{}, current: map[string]string{},
	}
}

// install adds the script's refresh tokens. Known ones keep their state: a new
// script must not bring a used token back to life.
func (i *issuer) install(s Script) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.conf, i.first = s.OAuth, s.OAuth.DeviceAccount
	for _, a := range s.Accounts {
		if i.first == "" {
			i.first = a.Name
		}
		if a.RefreshToken != "" && i.refresh[a.RefreshToken] == nil {
			i.refresh[a.RefreshToken] = &refreshToken{family: &family{account: a.Name, plan: orDefault(a.Plan, "pro")}}
			i.current[a.Name] = a.RefreshToken
		}
	}
}

// account names the owner of an access token; known is false for tokens that
// are not of this issuer.
func (i *issuer) account(token string) (name string, known bool, refusal *apiError) {
	i.mu.Lock()
	defer i.mu.Unlock()
	t, ok := i.access[token]
	if !ok {
		return "", false, nil
	}
	e := wrongKey()
	switch {
	case t.family.revoked:
		e.code, e.message = "token_invalidated", "Your authentication token has been invalidated. Please try signing in again."
	case time.Now().After(t.expires):
		e.code, e.message = "token_expired", "Provided authentication token is expired. Please try signing in again."
	default:
		return t.family.account, true, nil
	}
	return t.family.account, true, e
}

func isIssuerPath(path string) bool {
	return strings.HasPrefix(path, "/oauth/") || strings.HasPrefix(path, "/api/accounts/deviceauth/")
}

// serveIssuer answers the issuer's paths. A fault "afterHeaders" comes after
// the exchange: the token has rotated, and the reply is lost, or late with "hold".
func (s *Server) serveIssuer(w http.ResponseWriter, r *http.Request) {
	req := request{received: time.Now(), path: r.URL.Path, conn: connNumber(r), client: r.RemoteAddr, headers: r.Header}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if err != nil {
		s.deny(w, r, req, RouteOAuth, badRequest("invalid_request", "the body ended early", ""))
		return
	}
	fields := formOrJSON(body)
	account := s.issuer.owner(fields)
	rule, _ := s.director.pick(facts{account: account, route: RouteOAuth, path: req.path, transport: TransportHTTP, body: body})
	req.account = account
	before := rule != nil && rule.Fault != nil && (rule.Fault.At == "" || rule.Fault.At == AtBeforeHeaders)
	if before && s.disturb(w, r, req, rule.Fault) {
		return
	}
	status, answer, code := s.issuer.answer(r.Method, r.URL.Path, fields)
	if rule != nil && rule.Fault != nil && !before && s.disturb(w, r, req, rule.Fault) {
		return
	}
	s.note(r, req, RouteOAuth, status, code)
	w.Header().Set("Cache-Control", "no-store")
	writeJSON(w, status, answer)
}

// disturb plays a fault on the issuer; it says whether that was the answer. An
// exchange that is held goes on although its client has left, as a real one does.
func (s *Server) disturb(w http.ResponseWriter, r *http.Request, req request, f *Fault) bool {
	if f.Action != ActHold {
		return s.spoil(w, r, req, RouteOAuth, f)
	}
	s.issuer.holding(1)
	defer s.issuer.holding(-1)
	select {
	case <-s.released:
	case <-s.ctx.Done():
	}
	return false
}

func (i *issuer) holding(n int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.held += n
}

// Held is how many requests to the issuer the fault "hold" holds now.
func (s *Server) Held() int {
	s.issuer.mu.Lock()
	defer s.issuer.mu.Unlock()
	return s.issuer.held
}

func formOrJSON(body []byte) map[string]string {
	out := map[string]string{}
	if v, err := decode(body); err == nil {
		obj, _ := v.(map[string]any)
		for k, e := range obj {
			out[k] = text(e)
		}
		return out
	}
	if form, err := url.ParseQuery(string(body)); err == nil {
		for k := range form {
			out[k] = form.Get(k)
		}
	}
	return out
}

func (i *issuer) owner(fields map[string]string) string {
	i.mu.Lock()
	defer i.mu.Unlock()
	if t := i.refresh[fields["refresh_token"]]; t != nil {
		return t.family.account
	}
	return i.codes[fields["code"]]
}

// answer returns status, body and, for the ledger, an error code.
func (i *issuer) answer(method, path string, fields map[string]string) (int, any, string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case method != http.MethodPost:
		return oauthError(http.StatusMethodNotAllowed, "invalid_request", "use POST")
	case strings.HasSuffix(path, "/usercode"):
		id, code := "device_"+randomHex(8), strings.ToUpper(randomHex(2)+"-"+randomHex(2))
		i.devices[id] = &pendingDevice{userCode: code}
		return http.StatusOK, object{"device_auth_id", id, "user_code", code, "interval", "1", "expires_in", 900}, ""
	case strings.HasPrefix(path, "/api/accounts/deviceauth/"):
		return i.poll(fields)
	case path != "/oauth/token":
		return oauthError(http.StatusNotFound, "not_found", "no such path")
	}
	switch fields["grant_type"] {
	case "refresh_token":
		return i.rotate(fields["refresh_token"])
	case "authorization_code":
		account, ok := i.codes[fields["code"]]
		if !ok {
			return oauthError(http.StatusBadRequest, "invalid_grant", "unknown or used authorization code")
		}
		delete(i.codes, fields["code"])
		return i.grant(&family{account: account, plan: "pro"})
	default:
		return oauthError(http.StatusBadRequest, "unsupported_grant_type", "want refresh_token or authorization_code")
	}
}

func (i *issuer) poll(fields map[string]string) (int, any, string) {
	d := i.devices[fields["device_auth_id"]]
	if d == nil || d.userCode != fields["user_code"] {
		return oauthError(http.StatusNotFound, "invalid_request", "unknown device")
	}
	if d.polls++; d.polls <= i.conf.DevicePolls {
		return oauthError(http.StatusForbidden, "authorization_pending", "not approved yet")
	}
	delete(i.devices, fields["device_auth_id"])
	code := "code_" + randomHex(12)
	i.codes[code] = i.first
	return http.StatusOK, object{"authorization_code", code, "code_challenge", "unused", "code_verifier", "unused"}, ""
}

// rotate exchanges a refresh token for its successor.
func (i *issuer) rotate(token string) (int, any, string) {
	t := i.refresh[token]
	if t != nil {
		t.family.asked++
	}
	switch {
	case t == nil:
		return i.dead("refresh_token_invalidated", "Unknown refresh token.")
	case t.used:
		t.family.revoked = true
		return i.dead("refresh_token_reused", "Your refresh token has already been used to generate a new access token.")
	case t.family.revoked:
		return i.dead("refresh_token_invalidated", "Your session has been revoked.")
	}
	t.used = true
	return i.grant(t.family)
}

func (i *issuer) dead(code, message string) (int, any, string) {
	if i.conf.OpenAIErrors {
		e := object{"message", message, "type", "invalid_request_error", "param", nil, "code", code}
		return http.StatusUnauthorized, object{"error", e}, code
	}
	return oauthError(http.StatusBadRequest, "invalid_grant", message)
}

func oauthError(status int, code, message string) (int, any, string) {
	return status, object{"error", code, "error_description", message}, code
}

// grant makes the tokens of a family's next round.
func (i *issuer) grant(f *family) (int, any, string) {
	f.rounds++
	ttl := time.Duration(i.conf.AccessTTL)
	if ttl <= 0 {
		ttl = time.Hour
	}
	now := time.Now()
	access, next := unsignedJWT(f, now, now.Add(ttl)), "rt_"+randomHex(16)
	i.access[access] = accessToken{family: f, expires: now.Add(ttl)}
	i.refresh[next] = &refreshToken{family: f}
	i.current[f.account] = next
	return http.StatusOK, object{
		"access_token", access, "refresh_token", next, "id_token", unsignedJWT(f, now, now.Add(ttl)),
		"token_type", "Bearer", "expires_in", int(ttl.Seconds()), "scope", "openid profile email offline_access",
	}, ""
}

// unsignedJWT has the claims that clients read, and a signature nobody checks.
func unsignedJWT(f *family, now, expires time.Time) string {
	claims := object{
		"iss", "https://auth.openai.com", "aud", []string{"https://api.openai.com/v1"}, "sub", "user-" + f.account,
		"iat", now.Unix(), "exp", expires.Unix(), "jti", randomHex(8), "email", f.account + "@example.com",
		"https://api.openai.com/auth", object{
			"chatgpt_account_id", "acct-" + f.account, "chatgpt_plan_type", f.plan, "chatgpt_user_id", "user-" + f.account,
		},
	}
	b64 := base64.RawURLEncoding.EncodeToString
	return b64([]byte(`{"alg":"none","typ":"JWT"}`)) + "." + b64(encode(claims)) + "." + b64([]byte("unsigned"))
}

// RefreshToken is the token of an account that the issuer would accept now;
// empty if it has none. For tests that prove what was stored.
func (s *Server) RefreshToken(account string) string {
	s.issuer.mu.Lock()
	defer s.issuer.mu.Unlock()
	return s.issuer.current[account]
}

// Exchanges counts, for the family of an account's newest refresh token, how often
// one was presented and how often tokens were given: equal, if nobody ever used one
// twice.
func (s *Server) Exchanges(account string) (asked, given int) {
	s.issuer.mu.Lock()
	defer s.issuer.mu.Unlock()
	t := s.issuer.refresh[s.issuer.current[account]]
	if t == nil {
		return 0, 0
	}
	return t.family.asked, t.family.rounds
}

// Revoked says whether the login of an account is lost.
func (s *Server) Revoked(account string) bool {
	s.issuer.mu.Lock()
	defer s.issuer.mu.Unlock()
	t := s.issuer.refresh[s.issuer.current[account]]
	return t == nil || t.family.revoked
}
