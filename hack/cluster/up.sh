#!/usr/bin/env bash
# A Kubernetes cluster of NODES nodes (1 or 2) on this machine, from Go modules
# and Debian packages, in namespaces of its own. See the other scripts for how.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
NODES=${NODES:-1}
case $NODES in 1 | 2) ;; *) fail "NODES is 1 or 2, not '$NODES'" ;; esac

need_root
lock "$STATE.lock" "local cluster '$CLUSTER_NAME'"
if init_pid >/dev/null; then
  say "The local cluster '$CLUSTER_NAME' is up already (state in $STATE)"
  exit
fi
"$HERE/packages.sh"
use_assets
need_go

begun=$SECONDS
say "Starting the local cluster '$CLUSTER_NAME', $NODES node(s), state in $STATE"
"$HERE/down.sh" --quiet # what an interrupted run has left
mkdir -p "$STATE" "$LOGS"
chmod 700 "$STATE"
(cd "$ROOT" && go build -ldflags "-s -w" -o "$STATE/pause" ./hack/cluster/pause &&
  go run ./hack/mkimage -o "$STATE/pause.tar" -ref localhost/pause:1 -entrypoint /pause "$STATE/pause=/pause")

complete=
trap '[ -n "$complete" ] || "$HERE/down.sh" --keep-logs' EXIT
"$HERE/namespace.sh"
"$HERE/control-plane.sh"
for n in $(seq "$NODES"); do "$HERE/node.sh" "$n"; done
"$HERE/dns.sh"

all_ready() { kubectl wait --for=condition=Ready node --all --timeout=1s && [ "$(kubectl get nodes -o name | wc -l)" = "$NODES" ]; }
await "every node" 120 "kubelet-node1" all_ready
complete=yes
say "    $(kubectl version -o yaml | sed -n '/serverVersion/,$s/^  gitVersion: /Kubernetes /p') is up after $((SECONDS - begun)) s"
