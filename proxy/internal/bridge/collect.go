package bridge

import (
	"strings"

	"github.com/tidwall/gjson"
	"github.com/tidwall/sjson"

	"github.com/causeway-dev/causeway/proxy/internal/upstream"
)

// collector makes one response object of a stream, for a client that asked for
// no stream. It keeps the finished items and the end, and no delta.
type collector struct {
	items []string
	final string
}

// add takes an event in and releases it.
func (c *collector) add(e *upstream.Event) {
	switch e.Kind {
	case upstream.KindItemDone:
		if item := gjson.GetBytes(e.Data, "item"); item.IsObject() {
			c.items = append(c.items, item.Raw)
		}
	case upstream.KindCompleted, upstream.KindIncomplete, upstream.KindFailed:
		c.final = gjson.GetBytes(e.Data, "response").Raw
	case upstream.KindOther, upstream.KindCreated, upstream.KindInProgress, upstream.KindItemAdded,
		upstream.KindError, upstream.KindVendor, upstream.KindKeepalive:
	}
	e.Release()
}

// response is the response object as the upstream sent it; nil = none came. An
// upstream that leaves its output to the item events gets it filled in.
func (c *collector) response() []byte {
	if c.final == "" {
		return nil
	}
	output := gjson.Get(c.final, "output")
	if len(c.items) > 0 && (!output.Exists() || output.IsArray() && len(output.Array()) == 0) {
		if filled, err := sjson.SetRaw(c.final, "output", "["+strings.Join(c.items, ",")+"]"); err == nil {
			return []byte(filled)
		}
	}
	return []byte(c.final)
}
