//go:build !linux

package fleet

import "os/exec"

// dieWithParent does nothing: only Linux can.
func dieWithParent(*exec.Cmd) {}
