package bridge

import "strconv"

// after says whether a reply's Retry-After is want seconds, or what is added so
// that clients do not come back together; empty = none. The moment that passes
// meanwhile is less than a second.
func after(out *reply, want string) bool {
	got := out.header.Get("Retry-After")
	if want == "" || got == "" {
		return got == want
	}
	least, err := strconv.Atoi(want)
	n, errGot := strconv.Atoi(got)
	return err == nil && errGot == nil && n >= least && n <= least+1+min(least/10, 5)
}
