// Command lab puts load and faults on the proxy, as processes on this machine, in
// front of the scripted upstream: an account that never answers, a greedy client,
// an upstream that fails most of the time and heals. `make lab` builds and runs
// it; README.md says how each figure comes about.
//
// It never fails on a figure. It fails when something did not work: a turn that
// should have been served and was not, a fault that hit nobody.
package main
