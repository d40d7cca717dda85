#!/usr/bin/env bash
# Makes "the machine": a network, a mount and a process namespace around one
# process that does nothing. All daemons, mounts, interfaces and firewall rules
# of the cluster live in them, and killing that process takes everything along.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# Folders that Kubernetes and its runtime use under fixed names. Each gets an
# own tmpfs in the private mount namespace; the machine only sees empty folders,
# and down.sh removes those that were not there before.
FIXED="/var/log/pods /var/log/containers /var/lib/kubelet /var/lib/cni"

: >"$STATE/made"
for dir in $FIXED; do
  [ -d "$dir" ] && continue
  echo "$dir" >>"$STATE/made"
  mkdir -p "$dir"
done

# --kill-child: should unshare be killed, the namespaces end as well.
setsid unshare --net --mount --pid --fork --mount-proc --kill-child --propagation private \
  "$STATE/pause" </dev/null >/dev/null 2>&1 9>&- &
outer=$!
disown

inner=
for _ in $(seq 100); do
  inner=$(tr -d ' ' <"/proc/$outer/task/$outer/children" 2>/dev/null) || true
  # Until the exec of pause the mounts are not complete.
  [ -n "$inner" ] && [ "$(cat "/proc/$inner/comm" 2>/dev/null)" = pause ] && break
  inner=
  sleep 0.05
done
[ -n "$inner" ] || fail "the namespaces could not be made" \
  "Try by hand: unshare --net --mount --pid --fork --mount-proc true" \
  "Inside a container this needs one that runs privileged."
echo "$inner $(start_time "$inner")" >"$STATE/init"

# The default route goes nowhere. It is there because the kernel looks for a
# route to a ClusterIP before kube-proxy's rules give the packet its real target.
inside bash -euc "
  mount --make-rshared /
  mount -t tmpfs tmpfs /run
  mkdir -p /run/netns /run/lock
  for dir in $FIXED; do mount -t tmpfs tmpfs \$dir; done
  ip link set lo up
  ip link add node0 type veth peer name nowhere0
  ip link set nowhere0 up
  ip link set node0 up
  ip addr add $NODE_NET.1/24 dev node0
  ip route add default via $NODE_NET.254 dev node0
  sysctl -qw net.ipv4.ip_forward=1
"
# Pods of one node reach Services through their bridge only if bridged packets
# pass the firewall. The setting is the namespace's own.
inside sysctl -qw net.bridge.bridge-nf-call-iptables=1 2>/dev/null ||
  fail "this kernel has no bridge netfilter" "Load it: modprobe br_netfilter"
say "    namespaces are made (process $inner)"
