#!/usr/bin/env bash
# Ends the local cluster and leaves nothing of it.
#   --quiet      says nothing when none is up
#   --keep-logs  leaves the logs, for a start that failed
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
need_root

if pid=$(init_pid); then
  # Whoever started a daemon stops with it when that is held still, and does not go
  # on by itself; it would leave the daemon's remains, and with them the namespaces.
  for file in "$STATE"/*.pid; do
    [ ! -f "$file" ] || kill -CONT "$(cat "$file")" 2>/dev/null || true
  done
  # The kernel kills everything in a process namespace with its process 1, and
  # drops the mounts, interfaces and firewall rules with their namespaces.
  kill -KILL "$pid"
  for _ in $(seq 100); do
    [ -d "/proc/$pid" ] || break
    sleep 0.1
  done
  [ ! -d "/proc/$pid" ] || fail "process $pid of the local cluster does not end"
  say "The local cluster '$CLUSTER_NAME' is down"
elif [ "${1:-}" = "" ]; then
  say "No local cluster '$CLUSTER_NAME' is up"
fi

# Empty cgroups outlive the processes that were in them.
for group in /sys/fs/cgroup/"$CGROUP"-node* /sys/fs/cgroup/*/"$CGROUP"-node*; do
  [ -d "$group" ] || continue
  for _ in $(seq 50); do
    find "$group" -depth -type d -exec rmdir {} + 2>/dev/null && break
    sleep 0.1
  done
done

if [ -f "$STATE/made" ]; then
  tac "$STATE/made" | while read -r dir; do rmdir "$dir" 2>/dev/null || true; done
fi
for entry in "$STATE"/*; do
  [ "${1:-}" = --keep-logs ] && [ "$entry" = "$LOGS" ] && continue
  rm -rf "$entry"
done
[ "${1:-}" = --keep-logs ] || rm -rf "$STATE"
