//go:build !linux

package main

import "os/exec"

// dieWithParent does nothing: the measurement itself needs Linux.
func dieWithParent(*exec.Cmd) {}
