#!/usr/bin/env bash
# A bridge on a local cluster under load, upgraded again and again: no turn may
# fail, no stream may be cut, nothing may be sent twice. Takes as long as it is
# told to; the machine should be quiet.
#   ACTS="4xupgrade,rollback,evict"   what is done, in order; see test/upgrades
#   STREAMS=200 STREAM_SECONDS=180 RATE=20   the load
#   REPLICAS=3   proxies of a slot
#   MAX_ADDED=3s   most that turns may wait longer, p99 of each act but freeze; 0 on a machine that is not quiet
#   PREVIOUS=REF   a git commit whose proxy is there as well, for act image:previous
#   NODES=2, KEEP=1   as for the demo
# shellcheck disable=SC2034 # of steps.sh
CLUSTER=local
export CLUSTER_NAME=${CLUSTER_NAME:-upgrades} IMAGE_PREFIX=${IMAGE_PREFIX:-localhost/} IMAGE_TAG=${IMAGE_TAG:-dev}
# shellcheck disable=SC2034 # of steps.sh
TITLE="upgrade under load"
. "$(dirname "${BASH_SOURCE[0]}")/demo/steps.sh"

# roll_out_quickly lets slots take turns without the pauses that are for people.
roll_out_quickly() {
  k -n "$NAMESPACE" patch bp chat --type=merge -p "{\"spec\":{\"replicas\":${REPLICAS:-3},
    \"rollout\":{\"type\":\"BlueGreen\",\"blueGreen\":{\"readySeconds\":2,\"overlapSeconds\":3,\"retainSeconds\":600}}}}" >&2
}

# load_previous brings the proxy of another commit to the nodes, tagged "previous".
load_previous() {
  local source=$WORK/previous
  [ -n "${PREVIOUS:-}" ] || return 0
  step "Building the proxy of $PREVIOUS"
  mkdir "$source"
  git -C "$ROOT" archive "$PREVIOUS" | tar -x -C "$source"
  IMAGE_TAG=previous "$source/hack/images.sh"
  "$HERE/load.sh" "$source/bin/images/causeway-proxy.tar"
}

# addresses: several to call from, because the Service keeps an address on a pod.
addresses() {
  local n list=
  for n in $(seq 24); do
    inside ip address add "10.98.0.$n/32" dev lo
    list=$list,10.98.0.$n
  done
  echo "${list#,}"
}

load_and_upgrade() {
  local service=chat port proxy upstream
  port=$(k -n "$NAMESPACE" get service "$service" -o jsonpath='{.spec.ports[0].port}')
  proxy=$(k -n "$NAMESPACE" get service "$service" -o jsonpath='{.spec.clusterIP}'):$port
  upstream=$(k -n "$NAMESPACE" get service upstream -o jsonpath='{.spec.clusterIP}'):8443
  CAUSEWAY_CLIENT_KEY=$(client_key)
  export CAUSEWAY_CLIENT_KEY KUBECONFIG=$ADMIN PATH=$ASSETS:$PATH
  step "Load, and ${ACTS:=4xupgrade,rollback,evict}"
  (cd "$ROOT" && go build -o "$BIN/upgrades" ./test/upgrades)
  inside "$BIN/upgrades" -proxy "http://$proxy" -upstream "https://$upstream" -ca "$WORK/ca.crt" -server-name localhost \
    -namespace "$NAMESPACE" -bridge chat -image "${IMAGE_PREFIX}causeway-proxy" \
    -sources "$(addresses)" -acts "$ACTS" \
    -streams "${STREAMS:-200}" -stream-seconds "${STREAM_SECONDS:-180}" -rate "${RATE:-20}" -max-added "${MAX_ADDED:-3s}"
}

begin
start_cluster
load_images
load_previous
install_operator
apply_samples
# Its ledger remembers every turn of the run.
k -n "$NAMESPACE" set resources deployment/upstream --limits=memory=4Gi >&2
k -n "$NAMESPACE" rollout status deployment/upstream --timeout=120s >&2
roll_out_quickly
wait_ready "Waiting for the proxies"
load_and_upgrade
step "What kubectl tells of it"
k -n "$NAMESPACE" get bp -o wide
k -n "$NAMESPACE" get events --field-selector involvedObject.kind=BridgePolicy --sort-by=.metadata.creationTimestamp | tail -n 40
