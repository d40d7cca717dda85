package affinity

// Class is what a payload is in relation to what the session knows. It decides
// whether an anchor may be added or dropped, and is never guessed from sizes:
// a two-item delta is still a delta.
type Class uint8

const (
	// ClassFirst stands alone and nothing is known of its session.
	ClassFirst Class = iota
	// ClassFullProved repeats the known input and everything the last response
	// said; what follows is new.
	ClassFullProved
	// ClassFullPrefix repeats the known input but not provably the last
	// response's output.
	ClassFullPrefix
	// ClassFull stands alone: every tool output has its call before it. A
	// request without an anchor is whole by the API's contract, so it is sent as
	// it is.
	ClassFull
	// ClassDelta does not stand alone: a tool output without its call. Only its
	// anchor gives it meaning.
	ClassDelta
)

var classNames = [...]string{"first", "full_proved", "full_prefix", "full", "delta"}

func (c Class) String() string { return classNames[c] }

// Known is what a session knows of the conversation up to its last completed
// response.
type Known struct {
	// Items is the number of input items the response was made from; 0 = the
	// input was not known in full.
	Items int
	// Prefix digests those items.
	Prefix Digest
	// Outputs are the response's output items, in order.
	Outputs []Output
}

// Classify relates in to what is known. The number is the index of the first
// item that the last response has not seen: len(known input) + its own outputs
// for ClassFullProved, 0 for every other class.
func Classify(in Input, known *Known) (Class, int) {
	alone := in.SelfContained()
	if known == nil {
		if !alone {
			return ClassDelta, 0
		}
		return ClassFirst, 0
	}
	if known.Items > 0 && len(in.Items) > known.Items && in.Items[known.Items-1].Chain == known.Prefix {
		if end, ok := matchOutputs(in.Items, known); ok && end < len(in.Items) {
			return ClassFullProved, end
		}
		if alone {
			return ClassFullPrefix, 0
		}
	}
	if alone {
		return ClassFull, 0
	}
	return ClassDelta, 0
}

// matchOutputs walks the items behind the known prefix against the response's
// outputs. Reasoning may be missing, since many clients do not replay it; all
// else must be there, in order and as it was said.
func matchOutputs(items []Item, known *Known) (int, bool) {
	i := known.Items
	for _, out := range known.Outputs {
		if i < len(items) && items[i].Role == out.Role && items[i].Core == out.Core {
			i++
			continue
		}
		if out.Role != RoleReasoning {
			return 0, false
		}
	}
	return i, true
}

// SelfContained says whether every tool output of the input has its call before
// it.
func (in Input) SelfContained() bool {
	if !in.List {
		return true
	}
	var calls map[string]struct{}
	for _, item := range in.Items {
		switch item.Role {
		case RoleCall:
			if calls == nil {
				calls = make(map[string]struct{})
			}
			calls[item.CallID] = struct{}{}
		case RoleCallOutput:
			if _, known := calls[item.CallID]; !known {
				return false
			}
		case RoleOther, RoleSystem, RoleUser, RoleAssistant, RoleReasoning, RoleReference:
		}
	}
	return true
}

// Prefix is the digest of the whole input as Known.Prefix holds it.
func (in Input) Prefix() Digest {
	if len(in.Items) == 0 {
		return Digest{}
	}
	return in.Items[len(in.Items)-1].Chain
}
