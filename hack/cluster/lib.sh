# Shared by the scripts of this folder: source it, do not run it.
# shellcheck shell=bash disable=SC2034
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

HERE=$ROOT/hack/cluster
# A cluster is a folder with its state; several may be up at once.
CLUSTER_NAME=${CLUSTER_NAME:-dev}
STATE=${CLUSTER_STATE:-$CACHE/cluster/$CLUSTER_NAME}
PKI=$STATE/pki
LOGS=$STATE/logs
ADMIN=$PKI/admin.kubeconfig

# Addresses exist only inside the cluster's own network namespace.
NODE_NET=10.99.0
SERVICE_CIDR=10.96.0.0/16
API_SERVICE_IP=10.96.0.1
DNS_SERVICE_IP=10.96.0.10
POD_CIDR=10.244.0.0/16

# The cgroups of two clusters must not meet; everything else is namespaced.
CGROUP=causeway-$(printf %s "$STATE" | short_digest | cut -c1-8)

need_root() {
  [ "$(id -u)" = 0 ] || fail "the local cluster needs root: it makes namespaces and runs a kubelet" \
    "Run this as root, use CLUSTER=current with the cluster of your kubeconfig, or 'make try', which needs neither."
}

# start_time PID: the kernel's start time of a process; with it a process id that
# the system has given to somebody else since is told from ours.
start_time() {
  local stat
  stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
  # shellcheck disable=SC2086 # the fields after the name, which may hold blanks
  set -- ${stat##*) }
  echo "${20}"
}

# init_pid: process 1 of the cluster's namespaces, if it runs.
init_pid() {
  local pid started
  read -r pid started 2>/dev/null <"$STATE/init" || return 1
  [ "$(start_time "$pid")" = "$started" ] || return 1
  echo "$pid"
}

# inside COMMAND...: runs it in the cluster's namespaces.
inside() {
  local pid
  pid=$(init_pid) || fail "no local cluster '$CLUSTER_NAME' is up" "Start one: make cluster-up"
  nsenter --target "$pid" --net --mount --pid --wdns="$PWD" -- "$@"
}

# daemon NAME COMMAND...: starts it inside, with its output in logs/NAME.log. It
# ends with the namespaces. A session of its own keeps Ctrl-C in the terminal away.
daemon() {
  local name=$1 pid
  shift
  pid=$(init_pid)
  setsid nsenter --target "$pid" --net --mount --pid -- "$@" >"$LOGS/$name.log" 2>&1 </dev/null 9>&- &
  echo $! >"$STATE/$name.pid"
  disown
}

# await WHAT SECONDS LOG COMMAND...: until the command succeeds. On failure it
# shows the end of the log that should explain it.
await() {
  local what=$1 seconds=$2 log=$3 deadline=$((SECONDS + $2)) begun=$SECONDS told=$SECONDS
  shift 3
  until "$@" >/dev/null 2>&1; do
    if [ "$SECONDS" -ge "$deadline" ]; then
      tail -n 15 "$LOGS/$log.log" >&2 || true
      fail "$what is not ready after $seconds s" "Its log: $LOGS/$log.log"
    fi
    if [ $((SECONDS - told)) -ge 10 ]; then
      told=$SECONDS
      say "    waiting for $what, $((SECONDS - begun)) s"
    fi
    sleep 0.2
  done
  say "    $what is ready ($((SECONDS - begun)) s)"
}

# kubectl as the administrator of the local cluster; after use_assets.
kubectl() { inside "$ASSETS/kubectl" --kubeconfig "$ADMIN" "$@"; }

ASSETS=
# use_assets: ASSETS is the folder of the Kubernetes binaries; built if missing.
use_assets() {
  ASSETS=$("$ROOT/hack/assets.sh")
}

# cni_plugins: where distributions put the CNI plugins.
cni_plugins() {
  local dir
  for dir in "${CNI_BIN:-}" /usr/lib/cni /opt/cni/bin /usr/libexec/cni; do
    if [ -n "$dir" ] && [ -x "$dir/bridge" ] && [ -x "$dir/host-local" ] && [ -x "$dir/portmap" ]; then
      echo "$dir"
      return
    fi
  done
  return 1
}
