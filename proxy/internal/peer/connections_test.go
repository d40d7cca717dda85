package peer

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/bridge"
)

func TestBigBodiesArriveWhole(t *testing.T) {
	o := newOwner(t, func(w http.ResponseWriter, _ *http.Request, req *bridge.Request) {
		sum := sha256.Sum256(req.Body)
		_, _ = io.WriteString(w, hex.EncodeToString(sum[:]))
	})
	in := newOrigin(t, o.address)
	for _, size := range []int{2, 4 << 10, 64 << 10, 1<<20 + 1, 40 << 20} {
		body := bytes.Repeat([]byte("abcdefgh"), size/8+1)[:size]
		sum := sha256.Sum256(body)
		if got := in.post(t, string(body)); got.body != hex.EncodeToString(sum[:]) {
			t.Errorf("%d bytes: %+v", size, got)
		}
	}
}

func TestAPeerThatStartsAnewIsFoundAgain(t *testing.T) {
	o := newOwner(t, answer)
	in := newOrigin(t, o.address)
	if got := in.post(t, "{}"); got.status != http.StatusOK {
		t.Fatalf("%+v", got)
	}
	// A connection that rests is cut without a word.
	in.transport.CloseIdleConnections()
	if got := in.post(t, "{}"); got.body != created+delta+completed || o.count.Load() != 2 {
		t.Errorf("%+v", got)
	}
}

func TestAHundredForwardsAtOnce(t *testing.T) {
	o := newOwner(t, func(w http.ResponseWriter, _ *http.Request, req *bridge.Request) {
		say(w, created, fmt.Sprintf("event: x\ndata: %s\n\n", req.Body), completed)
	})
	in := newOrigin(t, o.address)
	var tasks sync.WaitGroup
	for i := range 100 {
		tasks.Go(func() {
			body := fmt.Sprintf(`{"turn":%d}`, i)
			if got := in.post(t, body); got.body != created+"event: x\ndata: "+body+"\n\n"+completed || got.err != nil {
				t.Errorf("turn %d: %+v", i, got)
			}
		})
	}
	tasks.Wait()
	if o.count.Load() != 100 || in.here.Load() != 0 {
		t.Errorf("%d at the owner, %d here", o.count.Load(), in.here.Load())
	}
}

func TestAvoidedIsForAMoment(t *testing.T) {
	var a avoided
	now := time.Now()
	if a.skip("x", now) {
		t.Error("avoided for nothing")
	}
	a.failed("x", now)
	for after, want := range map[time.Duration]bool{0: true, avoidFor - 1: true, avoidFor: false} {
		if got := a.skip("x", now.Add(after)); got != want {
			t.Errorf("after %s: %v", after, got)
		}
	}
	if a.skip("y", now) {
		t.Error("another one is avoided")
	}
	a.failed("y", now.Add(avoidFor))
	if len(a.until) != 1 {
		t.Errorf("%d failures are remembered", len(a.until))
	}
	a.reached("y")
	if a.skip("y", now.Add(avoidFor)) {
		t.Error("one that was reached is avoided")
	}
}
