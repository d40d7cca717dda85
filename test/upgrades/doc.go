// Command upgrades puts a bridge on a cluster under load, with long streams and a
// steady flow of new turns, and upgrades it again and again meanwhile. It counts
// turns that failed, streams that were cut, turns that reached the upstream twice
// and how much longer turns took while slots changed. hack/upgrades.sh runs it
// inside the network of a local cluster.
package main
