package session

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/affinity"
	"github.com/causeway-dev/causeway/proxy/internal/upstream"
)

const body = `{"model":"m","stream":true,"store":false,"input":[{"role":"user","content":"hi"}]}`

func expect(t *testing.T, a *asked, types string, ended bool, code string) {
	t.Helper()
	got, gotEnded, gotCode := a.take()
	if strings.Join(got, " ") != types || gotEnded != ended || gotCode != code {
		t.Fatalf("got %q ended %v code %q, want %q ended %v code %q", strings.Join(got, " "), gotEnded, gotCode, types, ended, code)
	}
}

func TestScenario30_EventThatHadArrivedWinsOverTheDeadline(t *testing.T) {
	inBubble(t, bundle.ProviderOpenAIPlatform, func(b *bench) {
		a := b.ask("t", body)
		conn := b.dialer.conn(0)
		// response.created arrives at the very instant of the deadline.
		time.AfterFunc(120*time.Second, func() { conn.play(created("r1")) })
		pass(120 * time.Second)
		pass(time.Second + DefaultHold)
		expect(t, a, "created", false, "")
		conn.play(completed("r1"))
		synctest.Wait()
		expect(t, a, "completed", true, "")
		if b.counts.rows["silent"] != 0 {
			t.Fatalf("verdicts: %v", b.counts.rows)
		}
	})
}

func TestScenario31_ReasoningBeforeADropIsLife(t *testing.T) {
	inBubble(t, bundle.ProviderOpenAIPlatform, func(b *bench) {
		a := b.ask("t", body)
		conn := b.dialer.conn(0)
		conn.play(`{"type":"response.output_item.added","item":{"type":"reasoning","id":"rs"}}`)
		synctest.Wait()
		conn.in <- errReset
		synctest.Wait()
		expect(t, a, "output_item.added", true, "stream_incomplete")
		if b.counts.rows["cut"] != 1 || b.counts.rows["cut_eventless"] != 0 {
			t.Fatalf("verdicts: %v", b.counts.rows)
		}
		for _, s := range b.accounts.States() {
			if s.State != "Usable" {
				t.Fatalf("account %+v", s)
			}
		}
	})
}

func TestScenario73_GateIsFreeFromCreatedOn(t *testing.T) {
	inBubble(t, bundle.ProviderChatGPT, func(b *bench) {
		first := b.ask("t", body)
		conn := b.dialer.conn(0)
		conn.play(created("r0"), completed("r0"))
		synctest.Wait()
		expect(t, first, "created completed", true, "")

		long := b.ask("t", `{"model":"m","stream":true,"previous_response_id":"r0","input":[{"role":"user","content":"long"}]}`)
		conn.play(created("r1"), `{"type":"response.output_text.delta","response_id":"r1","delta":"1"}`)
		synctest.Wait()
		pass(20 * time.Minute / 5) // within the idle limit
		next := b.ask("t", `{"model":"m","stream":true,"previous_response_id":"r0","input":[{"role":"user","content":"beside"}]}`)
		if n := b.dialer.count(); n != 1 {
			t.Fatalf("%d sockets", n)
		}
		if len(conn.sent) != 3 {
			t.Fatalf("%d requests sent, want 3: the second waits behind the long one", len(conn.sent))
		}
		third := b.ask("t", `{"model":"m","stream":true,"previous_response_id":"r0","input":[{"role":"user","content":"third"}]}`)
		if len(conn.sent) != 3 {
			t.Fatal("a request was sent while the one before it is un-created")
		}
		third.detach()
		synctest.Wait()
		conn.play(created("r2"),
			`{"type":"response.output_text.delta","response_id":"r1","delta":"2"}`,
			`{"type":"response.output_text.delta","response_id":"r2","delta":"x"}`,
			`{"type":"response.completed","response":{"id":"r2"},"response_id":"r2"}`,
			`{"type":"response.completed","response":{"id":"r1"},"response_id":"r1"}`)
		synctest.Wait()
		expect(t, long, "created output_text.delta output_text.delta completed", true, "")
		expect(t, next, "created output_text.delta completed", true, "")
	})
}

func TestScenario111_SlowReaderAfterCompletedSeesOneEnd(t *testing.T) {
	inBubble(t, bundle.ProviderOpenAIPlatform, func(b *bench) {
		a := b.ask("t", body)
		b.dialer.conn(0).play(created("r1"), completed("r1"))
		pass(400 * time.Second) // longer than the idle limit
		synctest.Wait()
		expect(t, a, "created completed", true, "")
		if b.counts.rows["idle"] != 0 || b.counts.rows["completed"] != 1 {
			t.Fatalf("verdicts: %v", b.counts.rows)
		}
	})
}

func TestScenario112_CompletedAfterTheIdleLimitReachesNobody(t *testing.T) {
	inBubble(t, bundle.ProviderOpenAIPlatform, func(b *bench) {
		a := b.ask("t", body)
		conn := b.dialer.conn(0)
		conn.play(created("r1"))
		pass(301 * time.Second)
		conn.play(completed("r1"))
		synctest.Wait()
		expect(t, a, "created", true, "stream_idle_timeout")
		if !conn.isClosed() || b.inflight() != 0 {
			t.Fatalf("socket closed %v, inflight %d", conn.isClosed(), b.inflight())
		}
	})
}

func TestScenario113_DisconnectBesideTheEndSettlesOnce(t *testing.T) {
	for _, clientFirst := range []bool{true, false} {
		inBubble(t, bundle.ProviderOpenAIPlatform, func(b *bench) {
			a := b.ask("t", body)
			conn := b.dialer.conn(0)
			conn.play(created("r1"))
			synctest.Wait()
			if clientFirst {
				a.detach()
				conn.play(completed("r1"))
			} else {
				conn.play(completed("r1"))
				a.detach()
			}
			synctest.Wait()
			pass(5 * time.Second)
			if b.inflight() != 0 {
				t.Fatalf("client first %v: %d turns still count", clientFirst, b.inflight())
			}
			total := 0
			for _, n := range b.counts.rows {
				total += n
			}
			if total != 1 {
				t.Fatalf("verdicts: %v", b.counts.rows)
			}
			if c := b.registry.Counts(); c.Active != 0 {
				t.Fatalf("sessions: %+v", c)
			}
		})
	}
}

func TestScenario114_WaiterNeverGetsTheLeaversResponse(t *testing.T) {
	inBubble(t, bundle.ProviderChatGPT, func(b *bench) {
		first := b.ask("t", body)
		conn := b.dialer.conn(0)
		conn.play(created("r0"), completed("r0"))
		synctest.Wait()
		expect(t, first, "created completed", true, "")
		leaver := b.ask("t", `{"model":"m","previous_response_id":"r0","input":[{"role":"user","content":"1"}]}`)
		waiter := b.ask("t", `{"model":"m","previous_response_id":"r0","input":[{"role":"user","content":"2"}]}`)
		if len(conn.sent) != 2 {
			t.Fatalf("%d sent: the waiter did not wait for response.created", len(conn.sent))
		}
		leaver.detach()
		synctest.Wait()
		fresh := b.dialer.conn(1)
		if fresh == nil || len(fresh.sent) != 1 {
			t.Fatal("the waiter was not sent on a fresh socket")
		}
		conn.play(created("leavers"), delta("secret"), completed("leavers"))
		fresh.play(created("waiters"), completed("waiters"))
		synctest.Wait()
		batch := waiter.Out.Take(nil)
		for i := range batch.Events {
			if strings.Contains(string(batch.Events[i].Data), "leavers") || strings.Contains(string(batch.Events[i].Data), "secret") {
				t.Fatalf("the waiter got %s", batch.Events[i].Data)
			}
		}
		if len(batch.Events) != 2 || !batch.Ended {
			t.Fatalf("%d events, ended %v", len(batch.Events), batch.Ended)
		}
	})
}

func TestScenario115_SlowClientLosesItsOwnTurnOnly(t *testing.T) {
	inBubble(t, bundle.ProviderOpenAIPlatform, func(b *bench) {
		slow, quick := b.ask("slow", body), b.ask("quick", body)
		b.dialer.conn(0).play(created("r1"))
		b.dialer.conn(1).play(created("r2"))
		piece := delta(strings.Repeat("x", 1<<20))
		for range 12 {
			b.dialer.conn(0).play(piece)
			b.dialer.conn(1).play(delta("y"))
			synctest.Wait()
			_, _, _ = quick.take()
		}
		b.dialer.conn(1).play(completed("r2"))
		synctest.Wait()
		expect(t, quick, "completed", true, "")
		_, ended, code := slow.take()
		if !ended || code != "downstream_overflow" {
			t.Fatalf("ended %v code %q", ended, code)
		}
		pass(2 * time.Second)
		if !b.dialer.conn(0).isClosed() || b.inflight() != 0 {
			t.Fatal("the slow client's socket or account is still held")
		}
	})
}

func TestScenario115_LargeEventBehindASmallOneIsNoOverflow(t *testing.T) {
	inBubble(t, bundle.ProviderOpenAIPlatform, func(b *bench) {
		a := b.ask("t", body)
		b.dialer.conn(0).play(created("r1"), delta(strings.Repeat("x", 12<<20)), completed("r1"))
		synctest.Wait()
		expect(t, a, "created output_text.delta completed", true, "")
		next := b.ask("u", body)
		b.dialer.conn(1).play(created("r2"), delta(strings.Repeat("x", 12<<20)))
		synctest.Wait()
		expect(t, next, "created output_text.delta", false, "")
		b.dialer.conn(1).play(completed("r2"))
		synctest.Wait()
		expect(t, next, "completed", true, "")
	})
}

func TestRequestTooLargeForAFrameGoesByHTTP(t *testing.T) {
	inBubble(t, bundle.ProviderOpenAIPlatform, func(b *bench) {
		first := b.ask("t", body)
		b.dialer.conn(0).play(created("r1"), completed("r1"))
		synctest.Wait()
		expect(t, first, "created completed", true, "")
		large := b.ask("t", strings.Replace(body, `"hi"`, `"`+strings.Repeat("x", maxFrameBytes)+`"`, 1))
		if b.dialer.count() != 2 || !strings.HasPrefix(<-b.dialer.conn(1).sent, `{"stream":true`) {
			t.Fatal("the large request did not go by HTTP")
		}
		b.dialer.conn(1).play(created("r2"), completed("r2"))
		synctest.Wait()
		expect(t, large, "created completed", true, "")
		next := b.ask("t", body)
		b.dialer.conn(0).play(created("r3"), completed("r3"))
		synctest.Wait()
		expect(t, next, "created completed", true, "") // on the socket that was there before
	})
}

func TestScenario116_UnmatchedFramesAreCountedAndDropped(t *testing.T) {
	inBubble(t, bundle.ProviderOpenAIPlatform, func(b *bench) {
		a := b.ask("t", body)
		conn := b.dialer.conn(0)
		conn.play(created("r1"), completed("other"), delta("mine"), completed("r1"), completed("r1"), delta("late"))
		synctest.Wait()
		expect(t, a, "created output_text.delta completed", true, "")
		if b.counts.unmatched != 3 {
			t.Fatalf("%d unmatched, want 3", b.counts.unmatched)
		}
		next := b.ask("t", `{"model":"m","store":false,"input":[{"role":"user","content":"hi"},{"role":"user","content":"more"}]}`)
		conn.play(completed("r1"), created("r2"), completed("r2"))
		synctest.Wait()
		expect(t, next, "created completed", true, "")
	})
}

func TestScenario118_EvictionLeavesNothingStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, bundle.ProviderOpenAIPlatform, 2)
		for i, name := range []string{"one", "two", "three"} {
			a := b.ask(name, body)
			conn := b.dialer.conn(i)
			if conn == nil {
				t.Fatalf("%s has no socket", name)
			}
			conn.play(created("r"+name), completed("r"+name))
			synctest.Wait()
			expect(t, a, "created completed", true, "")
			pass(time.Second)
		}
		if !b.dialer.conn(0).isClosed() || b.dialer.conn(1).isClosed() {
			t.Fatal("the session that was idle longest was not the one to go")
		}
		// The evicted key comes back at once, and its client leaves while another is
		// evicted for it: the key after that is served.
		again := b.ask("one", body)
		again.detach()
		synctest.Wait()
		last := b.ask("four", body)
		conn := b.dialer.conn(b.dialer.count() - 1)
		conn.play(created("r4"), completed("r4"))
		synctest.Wait()
		expect(t, last, "created completed", true, "")
		b.registry.Close(t.Context())
	})
}

func TestScenario118_AllBusyIsRefusedNotStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, bundle.ProviderOpenAIPlatform, 1)
		busy := b.ask("one", body)
		refused := b.ask("two", body)
		expect(t, refused, "", true, "draining")
		b.dialer.conn(0).play(created("r"), completed("r"))
		synctest.Wait()
		expect(t, busy, "created completed", true, "")
		b.registry.Close(t.Context())
	})
}

func TestScenario119_IdleSessionsCloseWithoutTraffic(t *testing.T) {
	inBubble(t, bundle.ProviderOpenAIPlatform, func(b *bench) {
		const n = 300
		for i := range n {
			a := b.ask(strings.Repeat("x", i+1), body)
			b.dialer.conn(i).play(created("r"), completed("r"))
			synctest.Wait()
			expect(t, a, "created completed", true, "")
		}
		pass(idleLimit(affinity.KindThread) + 10*time.Second)
		for i := range n {
			if !b.dialer.conn(i).isClosed() {
				t.Fatalf("socket %d is still open", i)
			}
		}
		if c := b.registry.Counts(); c != (Counts{}) {
			t.Fatalf("sessions left: %+v", c)
		}
	})
}

func TestB104_SocketThatDiesIdleIsNotHandedOut(t *testing.T) {
	inBubble(t, bundle.ProviderOpenAIPlatform, func(b *bench) {
		a := b.ask("t", body)
		b.dialer.conn(0).play(created("r1"), completed("r1"))
		synctest.Wait()
		expect(t, a, "created completed", true, "")
		pass(2 * time.Minute)
		b.dialer.conn(0).in <- &upstream.Ended{Cause: upstream.CauseAbrupt, Code: 1011}
		synctest.Wait()
		next := b.ask("t", `{"model":"m","store":false,"input":[{"role":"user","content":"hi"},{"role":"user","content":"more"}]}`)
		if b.dialer.count() != 2 || len(b.dialer.conn(0).sent) != 1 {
			t.Fatal("the dead socket was used again")
		}
		b.dialer.conn(1).play(created("r2"), completed("r2"))
		synctest.Wait()
		expect(t, next, "created completed", true, "")
		if b.counts.rows["completed"] != 2 || len(b.counts.rows) != 1 {
			t.Fatalf("verdicts: %v", b.counts.rows)
		}
	})
}
