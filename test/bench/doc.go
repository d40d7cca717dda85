// Command bench measures the proxy beside nginx, in one run on one machine: what
// relaying an event costs in latency, CPU and memory, and how long a turn waits
// for its first event. `make bench` builds and runs it; README.md says how each
// figure comes about.
//
// It never fails on a figure. It fails when something did not work: a turn that
// was refused, a stream that was cut.
package main
