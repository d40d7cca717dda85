package session

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/failure"
	"github.com/causeway-dev/causeway/proxy/internal/store"
)

// withFiles is a whole turn that refers to files.
func withFiles(ids ...string) string {
	var parts []string
	for _, id := range ids {
		parts = append(parts, `{"type":"input_file","file_id":"`+id+`"}`)
	}
	return `{"model":"m","store":false,"input":[{"role":"user","content":[` + strings.Join(parts, ",") + `]}]}`
}

// twoAccounts are a pool in which a turn has a choice.
var twoAccounts = setUp{provider: bundle.ProviderChatGPT, accounts: []string{"a", "b"}, firstEvent: 120}

func TestFilesGoToTheirAccount(t *testing.T) {
	for _, owner := range []string{"a", "b"} {
		inBubbleOf(t, twoAccounts, func(b *bench) {
			b.registry.PinFile("", "file-1", owner)
			for i := range 4 { // whatever the selection would say
				a := b.ask(fmt.Sprint(i), withFiles("file-1"))
				if got := b.newest().account; got != owner {
					t.Fatalf("a file of %s is read on %s", owner, got)
				}
				b.in(created("r"), completed("r"))
				a.take()
			}
		})
	}
}

func TestScenario79_OneTurnNeedsTwoAccounts(t *testing.T) {
	anchored := `{"model":"m","store":false,"previous_response_id":"r0","input":[{"role":"user","content":[{"type":"input_file","file_id":"file-1"}]}]}`
	for name, tc := range map[string]struct {
		pins       map[string]string
		body, code string
	}{
		"file there, response here":  {map[string]string{"file-1": "other"}, anchored, failure.OwnerConflict},
		"file and response here":     {map[string]string{"file-1": "own"}, anchored, ""},
		"files on two accounts":      {map[string]string{"file-1": "own", "file-2": "other"}, withFiles("file-1", "file-2"), failure.OwnerConflict},
		"a file that nobody knows":   {nil, anchored, ""},
		"a whole turn, file there":   {map[string]string{"file-1": "other"}, withFiles("file-1"), ""},
		"a delta, its file is there": {map[string]string{"file-1": "other"}, strings.Replace(toolOutput, `"output":`, `"extra":{"file_id":"file-1"},"output":`, 1), failure.PreviousResponseNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			inBubbleOf(t, twoAccounts, func(b *bench) {
				b.anchored("t")
				own := b.newest().account
				for file, at := range tc.pins {
					account := own
					if at == "other" {
						account = map[string]string{"a": "b", "b": "a"}[own]
					}
					b.registry.PinFile("", file, account)
				}
				before := b.sent()
				a := b.ask("t", tc.body)
				if code := a.code(); code != tc.code {
					t.Fatalf("%q, want %q", code, tc.code)
				}
				if refused := tc.code != ""; refused == (b.sent() > before) {
					t.Fatalf("%d requests went out", b.sent()-before)
				}
				a.detach()
			})
		})
	}
}

func TestScenario65_APinnedTurnStaysWithItsAccount(t *testing.T) {
	inBubbleOf(t, twoAccounts, func(b *bench) {
		b.registry.PinFile("", "file-1", "b")
		a := b.ask("t", withFiles("file-1"))
		b.in(`{"type":"error","status":429,"error":{"code":"rate_limit_exceeded","message":"slow"}}`)
		if code := a.code(); code == "" || b.sent() != 1 {
			t.Fatalf("%q after %d requests: its file is on one account alone", code, b.sent())
		}
	})
}

// A turn's anchor is on account b by the record, and on a by what this process
// remembers: the store is asked once, and right.
func TestScenario78_AStaleIndexIsReadOnceMore(t *testing.T) {
	const onR0 = `{"model":"m","store":false,"previous_response_id":"r0","input":[{"role":"user","content":"x"}]}`
	for name, tc := range map[string]struct {
		stored string // what the store says; empty = nothing
		code   string
	}{
		"Scenario 78: the store agrees with the record": {"own", ""},
		"the store agrees with the index":               {"other", failure.OwnerConflict},
		"the store knows nothing":                       {"", failure.OwnerConflict},
	} {
		t.Run(name, func(t *testing.T) {
			inReplicas(t, func(t *testing.T, shared store.Store) {
				r := newReplica(t, shared, "one", "1", twoAccounts)
				defer r.quit()
				r.anchored("t")
				own := r.newest().account
				owner, _, _ := r.registry.Owner(t.Context(), "", "r0")
				owner.Account = map[string]string{"a": "b", "b": "a"}[own]
				r.registry.owners.put("r0", "", owner)
				synctest.Wait()
				switch tc.stored {
				case "other":
					_ = shared.PutAlias(t.Context(), responseAlias("", "r0"), encodeOwner(owner), aliasLife)
				case "":
					_ = shared.PutAlias(t.Context(), responseAlias("", "r0"), []byte("{}"), aliasLife)
				}
				before := r.sent()
				a := r.ask("t", onR0)
				if code := a.code(); code != tc.code {
					t.Fatalf("%q, want %q", code, tc.code)
				}
				if sent := r.sent() - before; (tc.code == "") != (sent == 1) {
					t.Fatalf("%d requests", sent)
				}
				if r.counts.of("suppressed owners_disagree") != len(tc.code)/len(failure.OwnerConflict) {
					t.Fatalf("%v", r.counts.rows)
				}
				a.detach()
			})
		})
	}
}

// The memory of where a file lies is read once more too.
func TestScenario78_AStalePinIsReadOnceMore(t *testing.T) {
	inReplicas(t, func(t *testing.T, shared store.Store) {
		r := newReplica(t, shared, "one", "1", twoAccounts)
		defer r.quit()
		r.registry.PinFile("", "file-1", "a")
		r.registry.PinFile("", "file-2", "a")
		synctest.Wait()
		r.registry.pins.put(fileAlias("", "file-2"), "b")
		a := r.ask("t", withFiles("file-1", "file-2"))
		if code := a.code(); code != "" || r.sent() != 1 || r.newest().account != "a" {
			t.Fatalf("%q, %d requests", code, r.sent())
		}
		a.detach()
	})
}

// A client that leaves while the store is asked leaves nothing behind.
func TestAClientLeavesWhileOwnersAreReread(t *testing.T) {
	inReplicas(t, func(t *testing.T, shared store.Store) {
		r := newReplica(t, shared, "one", "1", twoAccounts)
		defer r.quit()
		r.anchored("t")
		owner, _, _ := r.registry.Owner(t.Context(), "", "r0")
		owner.Account = "elsewhere"
		r.registry.owners.put("r0", "", owner)
		r.store.setCut(true)
		rows := r.counts.kinds()
		a := r.ask("t", `{"model":"m","store":false,"previous_response_id":"r0","input":[{"role":"user","content":"x"}]}`)
		a.detach()
		synctest.Wait()
		if r.counts.kinds() != rows {
			t.Fatal("it is told as an attempt")
		}
		pass(lookupTimeout)
		r.store.setCut(false)
		if n := r.registry.Counts().Active; n != 0 || r.inflight() != 0 {
			t.Fatalf("%d turns left", n)
		}
	})
}

func TestFilesAreKnownToOtherReplicas(t *testing.T) {
	inReplicas(t, func(t *testing.T, shared store.Store) {
		one, two := newReplica(t, shared, "one", "1", twoAccounts), newReplica(t, shared, "two", "1", twoAccounts)
		defer one.quit()
		defer two.quit()
		one.registry.PinFile("me", "file-1", "b")
		synctest.Wait()
		if pin, err := two.registry.PinOf(t.Context(), "me", []string{"file-1"}); err != nil || pin.Account != "b" {
			t.Fatalf("%+v, %v", pin, err)
		}
		if pin, err := two.registry.PinOf(t.Context(), "another client", []string{"file-1"}); err != nil || pin != (Pin{}) {
			t.Fatalf("%+v, %v", pin, err)
		}
		two.store.setCut(true)
		if _, err := two.registry.PinOf(t.Context(), "me", []string{"file-2"}); err == nil {
			t.Fatal("nobody could know file-2, and nobody says so")
		}
		two.store.setCut(false)
	})
}
