package credential

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/causeway-dev/causeway/api/effective"
	"github.com/causeway-dev/causeway/api/version"
	"github.com/causeway-dev/causeway/controllers/internal/login"
)

// exchangeTimeout bounds one exchange as a whole. With what comes before and
// after it, it fits into login.IntentLife.
const exchangeTimeout = 8 * time.Second

// refreshScope is what the Codex CLI asks for when it refreshes.
const refreshScope = "openid profile email"

// Reply is how an exchange ended.
type Reply struct {
	Grant   login.Grant
	Outcome login.Outcome
	// Cause is an effective.Cause constant or empty; never text of the issuer.
	Cause string
}

// Exchanger exchanges a refresh token, once.
type Exchanger interface {
	Exchange(ctx context.Context, issuer effective.Issuer, refreshToken string) Reply
}

// HTTP is the Exchanger that asks issuers. It makes a connection for each
// exchange: a reused one that broke would make net/http send the request again,
// and a refresh token that is used twice may revoke the login. It is safe for
// concurrent use.
//
// golang.org/x/oauth2 is not used: its token source decides itself when to ask,
// tells a reply that got lost from a refusal only by the text of an error, and
// follows redirects with the token in hand.
type HTTP struct {
	timeout time.Duration // 0 = exchangeTimeout
}

// Exchange sends one request. It ends after exchangeTimeout, not with ctx: an
// exchange that is abandoned may have used up the token.
func (h HTTP) Exchange(ctx context.Context, issuer effective.Issuer, refreshToken string) Reply {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cmp.Or(h.timeout, exchangeTimeout))
	defer cancel()
	var connected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }})
	req, err := newRequest(ctx, issuer, refreshToken)
	if err != nil {
		return Reply{Outcome: login.Refused, Cause: effective.CauseAnswer}
	}
	client, err := NewClient(issuer.CABundle)
	if err != nil {
		return Reply{Outcome: login.Unreachable}
	}
	resp, err := client.Do(req)
	if err != nil {
		// Before there was a connection, nothing can have been sent.
		if connected.Load() {
			return Reply{Outcome: login.Unknown}
		}
		return Reply{Outcome: login.Unreachable}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, login.MaxReply+1))
	if err != nil || len(body) > login.MaxReply {
		return Reply{Outcome: login.Unknown}
	}
	var r Reply
	r.Grant, r.Outcome, r.Cause = login.Read(resp.StatusCode, body)
	return r
}

func newRequest(ctx context.Context, issuer effective.Issuer, refreshToken string) (*http.Request, error) {
	fields := map[string]string{"grant_type": "refresh_token", "client_id": issuer.ClientID, "refresh_token": refreshToken}
	body, kind, err := encode(fields, issuer.Form)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, issuer.TokenURL, bytes.NewReader(body))
	if err != nil {
		return nil, errors.New("making the request: the URL cannot be used")
	}
	req.GetBody = nil // nothing may send it a second time
	req.Header.Set("Content-Type", kind)
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "causeway-operator/"+version.Version)
	return req, nil
}

func encode(fields map[string]string, form bool) (body []byte, kind string, err error) {
	if form {
		values := url.Values{}
		for k, v := range fields {
			values.Set(k, v)
		}
		return []byte(values.Encode()), "application/x-www-form-urlencoded", nil
	}
	fields["scope"] = refreshScope
	body, err = json.Marshal(fields)
	if err != nil {
		return nil, "", errors.New("encoding the request failed")
	}
	return body, "application/json", nil
}

// NewClient returns a client for issuers, which trusts caBundle besides the
// system's certificates. It sends each request once, over a connection of its own,
// and follows no redirect: a token is sent to nobody but whom it is meant for.
func NewClient(caBundle string) (*http.Client, error) {
	t := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, TLSHandshakeTimeout: exchangeTimeout,
		MaxResponseHeaderBytes: login.MaxReply, Protocols: new(http.Protocols),
	}
	t.Protocols.SetHTTP1(true) // HTTP/2 has retries of its own
	client := &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	if caBundle == "" {
		return client, nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("reading the system's certificates: %w", err)
	}
	if !pool.AppendCertsFromPEM([]byte(caBundle)) {
		return nil, errors.New("provider.caBundle holds no certificate")
	}
	t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	return client, nil
}
