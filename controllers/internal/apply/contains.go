package apply

import "reflect"

// contains says whether live holds every field of intent with the same value.
// Both are decoded JSON. Fields of live that intent does not name are somebody
// else's. Lists must be equal in length: a longer one may be fine, which only
// the API server can tell, and it is asked then.
func contains(live, intent any) bool {
	switch want := intent.(type) {
	case map[string]any:
		have, ok := live.(map[string]any)
		if !ok {
			return len(want) == 0 && live == nil
		}
		for k, v := range want {
			if !contains(have[k], v) {
				return false
			}
		}
		return true
	case []any:
		have, ok := live.([]any)
		if !ok || len(have) != len(want) {
			return len(want) == 0 && live == nil
		}
		for i := range want {
			if !contains(have[i], want[i]) {
				return false
			}
		}
		return true
	default:
		return equalScalar(live, intent)
	}
}

// equalScalar compares numbers by value: an intent decoded from JSON holds
// int64 where a converted object may hold float64.
func equalScalar(a, b any) bool {
	if reflect.DeepEqual(a, b) {
		return true
	}
	x, okX := number(a)
	y, okY := number(b)
	return okX && okY && x == y
}

func number(v any) (float64, bool) {
	switch n := v.(type) {
	case int64:
		return float64(n), true
	case float64:
		return n, true
	}
	return 0, false
}
