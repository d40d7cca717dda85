package affinity

import (
	"crypto/sha256"
	"hash"
	"sort"
	"strings"

	"github.com/tidwall/gjson"
)

// DigestVersion is mixed into every digest. It changes whenever the canonical
// form does, so that stored digests of another form never match by accident.
const DigestVersion = 1

// hasher digests JSON values in a canonical form: object members sorted by
// name, strings unescaped, numbers as written (no float ever touches them),
// white space ignored. Equal values give equal digests whatever wrote them.
type hasher struct {
	h hash.Hash
}

func newHasher() *hasher {
	c := &hasher{h: sha256.New()}
	c.reset()
	return c
}

func (c *hasher) reset() {
	c.h.Reset()
	_, _ = c.h.Write([]byte{DigestVersion})
}

// sum digests one value.
func (c *hasher) sum(v gjson.Result) Digest {
	c.reset()
	c.value(v)
	var d Digest
	c.h.Sum(d[:0])
	return d
}

func (c *hasher) value(v gjson.Result) {
	switch {
	case v.IsObject():
		c.object(v)
	case v.IsArray():
		c.tag('[')
		v.ForEach(func(_, item gjson.Result) bool {
			c.value(item)
			return true
		})
		c.tag(']')
	case v.Type == gjson.String:
		c.tag('"')
		frame(c.h, v.Str)
	default: // numbers, true, false, null: the raw token
		c.tag('#')
		frame(c.h, strings.TrimSpace(v.Raw))
	}
}

func (c *hasher) object(v gjson.Result) {
	type member struct {
		name  string
		value gjson.Result
	}
	var small [16]member // most objects fit: no allocation
	members := small[:0]
	v.ForEach(func(name, value gjson.Result) bool {
		members = append(members, member{name.Str, value})
		return true
	})
	sort.SliceStable(members, func(i, j int) bool { return members[i].name < members[j].name })
	c.tag('{')
	for _, m := range members {
		frame(c.h, m.name)
		c.value(m.value)
	}
	c.tag('}')
}

func (c *hasher) tag(b byte) { _, _ = c.h.Write([]byte{b}) }

// chain extends a digest over a sequence by one element.
func chain(previous, element Digest) Digest {
	h := sha256.New()
	_, _ = h.Write(previous[:])
	_, _ = h.Write(element[:])
	var d Digest
	h.Sum(d[:0])
	return d
}
