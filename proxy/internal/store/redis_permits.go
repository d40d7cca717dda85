package store

import (
	"context"
	"time"
)

func (r *redisStore) permits(name string) string { return r.prefix + "{permits:" + name + "}:holders" }

// LeasePermits is one pipeline: one way to the server and back for all asks.
func (r *redisStore) LeasePermits(ctx context.Context, me Holder, asks []Ask, life time.Duration) []Grant {
	grants := make([]Grant, len(asks))
	var sent []int // the asks that are
	for i, a := range asks {
		if grants[i].Err = a.check(me); grants[i].Err == nil {
			sent = append(sent, i)
		}
	}
	for i, a := range r.runAll(ctx, scriptLease, len(sent), func(i int) (Key, []string, []any) {
		a := asks[sent[i]].sane()
		return permitKey(a.Name), []string{r.permits(a.Name)},
			[]any{me.Pod, me.Process, a.Limit, a.Keep, a.Need, a.Want, milliseconds(life), milliseconds(permitTurn)}
	}) {
		g := &grants[sent[i]]
		if g.Err = a.err; g.Err != nil {
			continue
		}
		if g.Count, g.Fair = int(a.number()), int(a.number()); a.bad {
			*g = Grant{Err: corrupt(permitKey(asks[sent[i]].Name))}
		}
	}
	return grants
}

// permitKey is the name of an ask as errors show it.
func permitKey(name string) Key { return Key("permits:" + name) }
