package clients

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/tidwall/gjson"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/test/upstream"
)

// withoutSockets is a way to the stage on which WebSockets are refused, as some are in
// the field. It returns its URL.
func (s *stage) withoutSockets(t *testing.T) string {
	t.Helper()
	target, err := url.Parse(s.data)
	if err != nil {
		t.Fatal(err)
	}
	on := httputil.NewSingleHostReverseProxy(target)
	on.FlushInterval = -1
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			w.WriteHeader(http.StatusUpgradeRequired)
			return
		}
		on.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	return front.URL
}

// B65: with a ChatGPT login the real Codex compresses its requests, where it has to
// post them. They are bridged as any others.
func TestB65_CodexWithChatGPTLoginSendsZstd(t *testing.T) {
	const rounds = 2
	login := chatGPTLogin(t)
	s := start(t, setup{
		// What Codex sends as its key is its access token, known here by its digest.
		clientKeys: []string{bundle.KeyDigest(login.access)},
		script:     upstream.Script{Conversation: &upstream.Conversation{ToolTurns: rounds, Reasoning: true, FinalText: "Done."}},
	})
	u := newCodex(t, codexSettings{builtIn: true, extra: fmt.Sprintf("openai_base_url = %q\nchatgpt_base_url = %q\ncli_auth_credentials_store = \"file\"\n",
		s.withoutSockets(t)+"/v1", startNothing(t)+"/backend-api")})
	if err := os.WriteFile(filepath.Join(u.home, "auth.json"), login.file, 0o600); err != nil {
		t.Fatal(err)
	}
	run := u.exec(t, "Go.")
	run.finished(t, rounds, "Done.")

	ds := s.up.Ledger().Dispatches()
	posts := 0
	for _, r := range s.tap.requests() {
		if r.Method != http.MethodPost {
			continue
		}
		if r.Header.Get("Content-Encoding") != "zstd" || len(ds) <= posts {
			t.Fatalf("request %d has the encoding %q; dispatches:%s", posts, r.Header.Get("Content-Encoding"), describe(ds))
		}
		body := unpack(t, r.body)
		t.Logf("request %d: %d bytes, %d decompressed, %d to the upstream", posts, len(r.body), len(body), ds[posts].WireBytes)
		input := gjson.GetBytes(body, "input").Array()
		if ds[posts].Model != "gpt-5.5" || ds[posts].LogicalItems < len(input) {
			t.Errorf("Codex sent %d items; the upstream knows of%s", len(input), describe(ds[posts:posts+1]))
		}
		posts++
	}
	for i, d := range ds {
		if d.Connection != ds[0].Connection || d.Outcome != upstream.OutcomeCompleted || i > 0 && (!d.AnchorResolved || d.InputItems != 1) {
			t.Errorf("not one socket with one item each:%s", describe(ds))
		}
		for _, name := range []string{"content-encoding", "chatgpt-account-id"} {
			if v := d.Headers[name]; v != "" {
				t.Errorf("the upstream got %s: %s", name, v)
			}
		}
	}
	if posts != rounds+1 || len(ds) != posts {
		t.Errorf("%d requests, %d dispatches, want %d", posts, len(ds), rounds+1)
	}
	if strings.Contains(s.log.String(), login.access) {
		t.Error("the login is in the log")
	}
	s.noDuplicates(t)
}

// B65: the same without Codex: each way to compress, and the upstream gets the
// JSON as it was, down to the digits of its numbers.
func TestB65_ZstdBodyArrivesAsItWas(t *testing.T) {
	body, err := os.ReadFile("testdata/codex_chatgpt.json")
	if err != nil {
		t.Fatal(err)
	}
	body = bytes.TrimSpace(body)
	s := start(t, setup{})
	sized, streamed := pack(t, body)
	for name, raw := range map[string][]byte{"size in the frame": sized, "size unknown": streamed, "two frames": append(pack1(t, body[:100]), pack1(t, body[100:])...)} {
		t.Run(name, func(t *testing.T) {
			before := len(s.up.Ledger().Dispatches())
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.data+"/v1/responses", bytes.NewReader(raw))
			if err != nil {
				t.Fatal(err)
			}
			for name, value := range map[string]string{
				"Authorization": "Bearer " + clientKey, "Content-Type": "application/json", "Content-Encoding": "zstd", "Accept": "text/event-stream",
				"Originator": "codex_exec", "Session-Id": name, "Thread-Id": name,
			} {
				req.Header.Set(name, value)
			}
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			res, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			answer, err := io.ReadAll(res.Body)
			if err != nil || res.StatusCode != http.StatusOK || !bytes.Contains(answer, []byte("event: response.completed\n")) {
				t.Fatalf("%d, %v: %s", res.StatusCode, err, answer)
			}
			ds := s.up.Ledger().Dispatches()[before:]
			if len(ds) != 1 || ds[0].Model != "gpt-5.5" {
				t.Fatal(describe(ds))
			}
			got := gjson.ParseBytes(ds[0].Body)
			for key, want := range gjson.ParseBytes(body).Map() {
				if key != "stream" && got.Get(key).Raw != want.Raw {
					t.Errorf("%s arrived as %s, want %s", key, got.Get(key).Raw, want.Raw)
				}
			}
		})
	}
}

func unpack(t *testing.T, raw []byte) []byte {
	t.Helper()
	z, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	out, err := z.DecodeAll(raw, nil)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// pack compresses with the content's size in the frame, and without, as an
// encoder does that does not know it.
func pack(t *testing.T, body []byte) (sized, streamed []byte) {
	t.Helper()
	var b bytes.Buffer
	z, err := zstd.NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	for part := range bytes.SplitAfterSeq(body, []byte(",")) {
		if _, err := z.Write(part); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Flush(); err != nil { // what is flushed before the end has no size in front
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return pack1(t, body), b.Bytes()
}

func pack1(t *testing.T, body []byte) []byte {
	t.Helper()
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	return z.EncodeAll(body, nil)
}

// login is a ChatGPT login that nobody signed.
type login struct {
	access string
	file   []byte
}

func chatGPTLogin(t *testing.T) login {
	t.Helper()
	const account = "11111111-2222-4333-8444-555555555555"
	encode := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return base64.RawURLEncoding.EncodeToString(b)
	}
	token := encode(map[string]any{"alg": "none", "typ": "JWT"}) + "." + encode(map[string]any{
		"email": "someone@example.com", "exp": time.Now().Add(24 * time.Hour).Unix(),
		"https://api.openai.com/auth": map[string]any{
			"chatgpt_account_id": account, "chatgpt_user_id": "user-1", "chatgpt_plan_type": "pro",
		},
	}) + ".CANARY"
	file, err := json.Marshal(map[string]any{
		"auth_mode": "chatgpt", "OPENAI_API_KEY": nil, "last_refresh": time.Now().UTC().Format(time.RFC3339),
		"tokens": map[string]any{"id_token": token, "access_token": token, "refresh_token": "refresh-CANARY", "account_id": account},
	})
	if err != nil {
		t.Fatal(err)
	}
	return login{token, file}
}

// startNothing is a server that knows no path: what Codex asks ChatGPT for
// beside its turns, it can do without.
func startNothing(t *testing.T) string {
	t.Helper()
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nothing := &http.Server{Handler: http.NotFoundHandler(), ReadHeaderTimeout: time.Minute}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = nothing.Serve(ln)
	}()
	t.Cleanup(func() {
		nothing.Close()
		<-ended
	})
	return "http://" + ln.Addr().String()
}
