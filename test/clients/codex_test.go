package clients

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// codex is one user of the Codex CLI: a folder for its state and one to work in.
type codex struct {
	bin, home, work string
	env             []string
}

// codexSettings differ between tests; empty means as Codex does by default.
type codexSettings struct {
	base       string // of the API, with /v1
	websockets bool
	idleMS     int
	retries    string // of a stream
	extra      string // of config.toml, on top
	builtIn    bool   // the built-in provider instead of one of our own
	key        string // of the proxy; empty = clientKey
}

func newCodex(t *testing.T, c codexSettings) *codex {
	t.Helper()
	if c.key == "" {
		c.key = clientKey
	}
	root := t.TempDir()
	u := &codex{bin: codexBinary(t), home: filepath.Join(root, "codex"), work: filepath.Join(root, "work")}
	for _, dir := range []string{u.home, u.work} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(u.home, "config.toml"), []byte(c.toml()), 0o600); err != nil {
		t.Fatal(err)
	}
	// Nothing of the machine's user: a login shell with their profile can take
	// seconds for each command. What is not on this machine cannot be reached.
	u.env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + root, "CODEX_HOME=" + u.home, "SHELL=/bin/sh", "LANG=C.UTF-8",
		"CAUSEWAY_KEY=" + c.key, "NO_PROXY=127.0.0.1", "HTTP_PROXY=http://127.0.0.1:9", "HTTPS_PROXY=http://127.0.0.1:9",
	}
	return u
}

func (c codexSettings) toml() string {
	var b strings.Builder
	line := func(format string, v ...any) { fmt.Fprintf(&b, format+"\n", v...) }
	line(`model = "gpt-5.5"`)
	line(`check_for_update_on_startup = false`)
	b.WriteString(c.extra)
	if !c.builtIn {
		line(`model_provider = "causeway"`)
	}
	line(`[analytics]`)
	line(`enabled = false`)
	// Otherwise it looks for plugins on the internet.
	line("[features]\nplugins = false\nshell_snapshot = false")
	if c.builtIn {
		return b.String()
	}
	line(`[model_providers.causeway]`)
	line(`name = "causeway"`)
	line(`base_url = %q`, c.base)
	line(`wire_api = "responses"`)
	line(`env_key = "CAUSEWAY_KEY"`)
	line(`supports_websockets = %t`, c.websockets)
	if c.idleMS != 0 {
		line(`stream_idle_timeout_ms = %d`, c.idleMS)
	}
	if c.retries != "" {
		line(`stream_max_retries = %s`, c.retries)
	}
	return b.String()
}

// codexRun is what one run of Codex printed.
type codexRun struct {
	thread   string
	messages []string // of the assistant
	commands []codexCommand
	errors   []string
	failed   bool
	took     time.Duration
	raw      string
}

type codexCommand struct {
	Command  string `json:"command"`
	Output   string `json:"aggregated_output"`
	ExitCode *int   `json:"exit_code"`
	Status   string `json:"status"`
}

// Ways to give Codex a prompt.
var (
	newTalk = []string{"exec"}
	// lastTalk goes on with the last conversation, in a new process.
	lastTalk = []string{"exec", "resume", "--last"}
)

// exec gives Codex one prompt in a new conversation.
func (u *codex) exec(t *testing.T, prompt string) codexRun {
	t.Helper()
	return u.must(t, newTalk, prompt)
}

// resume goes on with the last conversation, in a new process.
func (u *codex) resume(t *testing.T, prompt string) codexRun {
	t.Helper()
	return u.must(t, lastTalk, prompt)
}

func (u *codex) must(t *testing.T, how []string, prompt string) codexRun {
	t.Helper()
	r, err := u.run(t.Context(), how, prompt)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// run gives Codex one prompt. An error means that what it printed makes no sense.
func (u *codex) run(ctx context.Context, how []string, prompt string) (codexRun, error) {
	// The tool calls come from the test's own upstream.
	args := append(slices.Clone(how), "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", prompt)
	cmd := exec.CommandContext(ctx, u.bin, args...)
	cmd.Dir, cmd.Env = u.work, u.env
	endWithTest(cmd)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	begun := time.Now()
	err := cmd.Run()
	r := codexRun{took: time.Since(begun), raw: out.String() + errOut.String()}
	if err := r.read(out.Bytes()); err != nil {
		return r, err
	}
	if r.failed != (err != nil) {
		return r, fmt.Errorf("Codex ended with %w:\n%s", err, r.raw)
	}
	return r, nil
}

// endWithTest takes the commands with it that the client itself has started.
func endWithTest(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
}

func (r *codexRun) read(out []byte) error {
	for line := range bytes.Lines(out) {
		var e struct {
			Type     string `json:"type"`
			ThreadID string `json:"thread_id"`
			Message  string `json:"message"`
			Error    struct{ Message string }
			Item     struct {
				Type, Text, Message string
				codexCommand
			}
		}
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("Codex printed %q: %w", line, err)
		}
		switch e.Type {
		case "thread.started":
			r.thread = e.ThreadID
		case "error":
			r.errors = append(r.errors, e.Message)
		case "turn.failed":
			r.failed = true
			r.errors = append(r.errors, e.Error.Message)
		case "item.completed":
			r.item(e.Item.Type, e.Item.Text, e.Item.Message, e.Item.codexCommand)
		}
	}
	return nil
}

func (r *codexRun) item(kind, text, message string, command codexCommand) {
	switch kind {
	case "agent_message":
		r.messages = append(r.messages, text)
	case "command_execution":
		r.commands = append(r.commands, command)
	case "error":
		r.errors = append(r.errors, message)
	}
}

// finished fails the test unless the run ended well: every command ran, the
// last message is want, and nothing was complained of.
func (r codexRun) finished(t *testing.T, commands int, want string) {
	t.Helper()
	if !r.ended(commands, want) || len(r.errors) > 0 {
		t.Fatalf("want %d commands, then %q; Codex printed:\n%s", commands, want, r.raw)
	}
}

// ended says whether the run ended well, whatever was complained of on the way.
func (r codexRun) ended(commands int, want string) bool {
	ok := !r.failed && len(r.commands) == commands && len(r.messages) > 0 && r.messages[len(r.messages)-1] == want
	for _, c := range r.commands {
		ok = ok && c.ExitCode != nil && *c.ExitCode == 0
	}
	return ok
}

// within bounds one wait on a client that hangs.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
