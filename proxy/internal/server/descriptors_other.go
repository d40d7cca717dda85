//go:build !unix

package server

// connections is how many the data port takes.
func connections() int { return maxConnections }
