//go:build unix

package server

import "syscall"

// connections is how many the data port takes: one that is served needs another
// descriptor for its upstream, and the ops port and the store need theirs too.
func connections() int {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) != nil || l.Cur/2 > maxConnections {
		return maxConnections
	}
	return max(1, int(l.Cur/2)) //nolint:gosec // at most maxConnections
}
