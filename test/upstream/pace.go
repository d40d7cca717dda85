package upstream

import (
	"context"
	"time"
)

// pace is how bytes go out: whole, in pieces, or slowly.
type pace struct {
	chunk          int // bytes per piece; 0 means whole
	bytesPerSecond int // 0 means as fast as possible
}

// slowTick is the rhythm of slow: ten pieces a second look like a trickle and
// are still few.
const slowTick = 100 * time.Millisecond

func (p *pace) whole() bool { return p.chunk <= 0 && p.bytesPerSecond <= 0 }

// pieces hands out b in pieces, waiting in between if it must be slow.
func (p *pace) pieces(ctx context.Context, b []byte, put func(piece []byte, last bool) error) error {
	size := len(b)
	if p.chunk > 0 {
		size = p.chunk
	}
	if p.bytesPerSecond > 0 {
		size = max(1, min(size, p.bytesPerSecond/10))
	}
	for {
		n := min(size, len(b))
		if err := put(b[:n], n == len(b)); err != nil {
			return err
		}
		if b = b[n:]; len(b) == 0 {
			return nil
		}
		if p.bytesPerSecond > 0 {
			if err := wait(ctx, slowTick); err != nil {
				return err
			}
		}
	}
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
