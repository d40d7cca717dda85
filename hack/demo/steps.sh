# Shared by the scripts that try the whole thing on a cluster: source it, do not
# run it. TITLE names what is tried.
# shellcheck shell=bash
. "$(dirname "${BASH_SOURCE[0]}")/../cluster/lib.sh"

NAMESPACE=causeway-demo
MARK=causeway.dev/demo # annotation on what the demo may remove again
BIN=$ROOT/bin
WORK=
FORWARDS=()
OURS= # set once what is installed in the cluster is the demo's

case $CLUSTER in
local)
  need_root
  k() { kubectl "$@"; }
  ;;
current)
  KUBECTL=$(type -P kubectl) || { use_assets && KUBECTL=$ASSETS/kubectl; }
  k() { "$KUBECTL" "$@"; }
  ;;
*) fail "CLUSTER is local or current, not '$CLUSTER'" ;;
esac

# ---------------------------------------------------------------- cleaning up

cleanup() {
  local code=$? pid
  trap - EXIT INT TERM
  set +e
  for pid in ${FORWARDS[@]+"${FORWARDS[@]}"}; do kill "$pid" 2>/dev/null; done
  case $code in 0 | 130) ;; *) show_state ;; esac
  if [ -n "${KEEP:-}" ]; then
    step "KEEP is set: everything stays up"
    if [ "$CLUSTER" = local ]; then
      say "    look around:   make cluster-shell CLUSTER_NAME=$CLUSTER_NAME"
      say "    take it down:  make cluster-down CLUSTER_NAME=$CLUSTER_NAME"
    else
      say "    the next 'make demo' takes it away first"
    fi
  else
    step "Cleaning up"
    remove
  fi
  [ -z "$WORK" ] || rm -rf "$WORK"
  case $code in
  0) step "The $TITLE passed ($SECONDS s)." ;;
  130) step "The $TITLE was interrupted." ;;
  *) step "The $TITLE FAILED." ;;
  esac
  exit "$code"
}

remove() {
  if [ "$CLUSTER" = local ]; then
    "$HERE/down.sh"
    return
  fi
  [ -n "$OURS" ] || return 0
  [ -f "$WORK/operator.yaml" ] || k kustomize "$ROOT/config/default" >"$WORK/operator.yaml"
  # The operator goes first: what it made must not need it to go away.
  k delete --ignore-not-found --wait -f "$WORK/operator.yaml" >&2
  # The namespace goes when its pods have gone: while there are any, Kubernetes
  # looks again only after half of their grace period, and that of a proxy is long.
  k -n "$NAMESPACE" delete --ignore-not-found deployment upstream >&2
  k -n "$NAMESPACE" wait --for=delete pod --all --timeout=120s >&2
  k delete --ignore-not-found --wait --timeout=120s namespace "$NAMESPACE" >&2
}

# show_state is what helps to see why a run failed.
show_state() {
  [ "$CLUSTER" = current ] || init_pid >/dev/null || return
  step "State at the failure"
  {
    k get pods -A -o wide
    k -n "$NAMESPACE" get ap,cp,bp,brep -o wide
    k -n "$NAMESPACE" get bp -o yaml | sed -n '/^  status:/,$p'
    k get events -A --sort-by=.lastTimestamp | tail -n 20
    [ -z "${OPERATOR:-}" ] || k logs -n "${OPERATOR%/*}" "deployment/${OPERATOR#*/}" --tail=40
    k -n "$NAMESPACE" logs -l app.kubernetes.io/name=causeway-proxy --prefix --tail=20
  } 2>&1 | cut -c1-400 >&2
}

# ----------------------------------------------------------------- the steps

start_cluster() {
  if [ "$CLUSTER" = current ]; then
    step "Using the cluster of the current kubeconfig: $(k config current-context)"
    k version >&2 || fail "that cluster does not answer"
    if k get namespace "$NAMESPACE" >/dev/null 2>&1; then
      [ -n "$(k get namespace "$NAMESPACE" -o "jsonpath={.metadata.annotations.${MARK//./\\.}}")" ] ||
        fail "the namespace $NAMESPACE exists and is not the demo's"
      say "    taking away what an earlier demo has left"
      OURS=yes
      remove
    elif k get crd accountpools.causeway.dev >/dev/null 2>&1; then
      fail "Causeway is installed in this cluster already" "The demo would replace it and remove it at its end; use another cluster."
    fi
    return
  fi
  step "Starting a Kubernetes cluster on this machine"
  # One that an interrupted demo has left is not in a known state.
  "$HERE/down.sh" --quiet
  "$HERE/up.sh"
  use_assets
}

load_images() {
  step "Building the binaries and images"
  "$ROOT/hack/images.sh"
  (cd "$ROOT" && go build -ldflags "-s -w" -o "$BIN/talk" ./hack/talk)
  if [ "$CLUSTER" = local ]; then
    "$HERE/load.sh" "$BIN"/images/*.tar
  elif [ "$IMAGE_PREFIX" = localhost/ ]; then
    say "    the nodes of the cluster need these images. With kind:"
    say "        for tar in bin/images/*.tar; do kind load image-archive \$tar; done"
    say "    With a registry: IMAGE_PREFIX=registry.example.com/you/ make images, push bin/images/*.tar"
    say "    (for example 'skopeo copy oci-archive:FILE docker://NAME'), and the same IMAGE_PREFIX for make demo."
  fi
}

with_images() { sed -E "s#localhost/(causeway-[a-z]+):dev#$IMAGE_PREFIX\1:$IMAGE_TAG#g"; }

install_operator() {
  step "Installing the CRDs and the operator (config/default)"
  k kustomize "$ROOT/config/default" | with_images >"$WORK/operator.yaml"
  OURS=yes
  k apply --server-side --field-manager=causeway-demo -f "$WORK/operator.yaml" >&2
  k wait --for=condition=Established --timeout=60s crd \
    accountpools.causeway.dev circuitpolicies.causeway.dev bridgepolicies.causeway.dev bridgereplicas.causeway.dev >&2
  OPERATOR=$(k get -f "$WORK/operator.yaml" -o go-template='{{range .items}}{{if eq .kind "Deployment"}}{{.metadata.namespace}}/{{.metadata.name}}{{end}}{{end}}')
  k rollout status -n "${OPERATOR%/*}" "deployment/${OPERATOR#*/}" --timeout=180s >&2
}

certificates() {
  (
    cd "$WORK" || exit 1
    openssl ecparam -name prime256v1 -genkey -noout -out ca.key
    openssl req -x509 -new -key ca.key -sha256 -days 2 -subj /CN=causeway-demo -out ca.crt \
      -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign
    openssl ecparam -name prime256v1 -genkey -noout -out tls.key
    printf 'subjectAltName=DNS:upstream.%s.svc,DNS:localhost,IP:127.0.0.1\nextendedKeyUsage=serverAuth\n' "$NAMESPACE" >tls.ext
    openssl req -new -key tls.key -subj /CN=upstream |
      openssl x509 -req -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -sha256 -extfile tls.ext -out tls.crt
  ) 2>/dev/null
}

# apply_samples puts config/samples into the demo's namespace as they are, but
# for the address of the upstream and the authority it is checked against.
apply_samples() {
  step "Applying config/samples and a scripted upstream in namespace $NAMESPACE"
  certificates
  mkdir -p "$WORK/samples"
  {
    echo "namespace: $NAMESPACE"
    echo "resources: [$(realpath --relative-to="$WORK/samples" "$ROOT/config/samples")]"
    echo "patches:"
    echo "- target: {kind: AccountPool}"
    echo "  patch: |-"
    echo "    - {op: add, path: /spec/provider/endpoint, value: \"https://upstream.$NAMESPACE.svc:8443/v1\"}"
    echo "    - op: add"
    echo "      path: /spec/provider/caBundle"
    echo "      value: |"
    sed 's/^/        /' "$WORK/ca.crt"
  } >"$WORK/samples/kustomization.yaml"

  k apply --server-side -f - >&2 <<EOF
apiVersion: v1
kind: Namespace
metadata:
  name: $NAMESPACE
  annotations: {$MARK: "yes"}
  labels: {pod-security.kubernetes.io/enforce: restricted}
EOF
  k kustomize "$WORK/samples" >"$WORK/samples.yaml"
  k apply --server-side -f "$WORK/samples.yaml" >&2
  # The upstream's accounts are those of the pool.
  # shellcheck disable=SC2016 # a template of kubectl's
  k -n "$NAMESPACE" get secret openai-keys \
    -o go-template='{{range $name, $key := .data}}{{$name}}={{$key | base64decode}}{{"\n"}}{{end}}' >"$WORK/accounts"
  k -n "$NAMESPACE" create secret generic upstream \
    --from-file="$WORK/tls.crt" --from-file="$WORK/tls.key" --from-file="$WORK/accounts" >&2
  with_images <"$ROOT/hack/demo/upstream.yaml" | k -n "$NAMESPACE" apply --server-side -f - >&2
  k -n "$NAMESPACE" rollout status deployment/upstream --timeout=120s >&2
}

# begin: from here on, whatever is started is taken down again.
begin() {
  need_go
  trap cleanup EXIT
  trap 'exit 130' INT TERM
  mkdir -p "$BIN"
  lock "$CACHE/demo.lock" "make demo"
  rm -rf "$BIN"/demo-* # of a run that was killed
  WORK=$(mktemp -d "$BIN/demo-XXXXXX")
}

# client_key: the key of a client of the bridge.
client_key() {
  k -n "$NAMESPACE" get secret "$(k -n "$NAMESPACE" get bp -o jsonpath='{.items[0].spec.clients.keysSecretRef.name}')" \
    -o go-template='{{range .data}}{{. | base64decode}}{{"\n"}}{{end}}' | head -n 1
}

READY='{range .items[*]}{.kind}/{.metadata.name}={.status.conditions[?(@.type=="Ready")].status} {end}'

# wait_ready TITLE: until every resource is Ready and every proxy has reported.
wait_ready() {
  local begun=$SECONDS told=$SECONDS states reported wanted
  step "$1"
  wanted=$(k -n "$NAMESPACE" get bp -o jsonpath='{.items[0].spec.replicas}')
  while :; do
    states=$(k -n "$NAMESPACE" get ap,cp,bp -o jsonpath="$READY" || true)
    reported=$( (k -n "$NAMESPACE" get brep -o jsonpath='{range .items[?(@.status.reportedAt)]}{.metadata.name} {end}' || true) | wc -w)
    if [ "$(wc -w <<<"$states")" -ge 3 ] && ! grep -qvE '=True$' < <(tr ' ' '\n' <<<"$states" | grep .) && [ "$reported" -ge "${wanted:-1}" ]; then
      say "    all Ready after $((SECONDS - begun)) s"
      return
    fi
    [ $((SECONDS - begun)) -lt 180 ] || fail "not Ready after 180 s: $states; $reported of ${wanted:-1} proxies have reported"
    if [ $((SECONDS - told)) -ge 5 ]; then
      told=$SECONDS
      say "    $((SECONDS - begun)) s: $states$reported of ${wanted:-1} proxies have reported"
      k -n "$NAMESPACE" get bp -o jsonpath='{range .items[*]}    {.status.conditions[?(@.type=="Ready")].message}{"\n"}{end}' >&2
    fi
    sleep 1
  done
}

# forward SERVICE PORT prints a local address that leads to the Service.
forward() {
  local log=$WORK/forward-$1 port
  "$KUBECTL" -n "$NAMESPACE" port-forward "service/$1" ":$2" >"$log" 2>&1 &
  FORWARDS+=($!)
  for _ in $(seq 100); do
    port=$(sed -n 's/^Forwarding from 127.0.0.1:\([0-9]*\) .*/\1/p' "$log")
    [ -z "$port" ] || break
    sleep 0.1
  done
  [ -n "$port" ] || fail "no port-forward to service/$1" "$(cat "$log")"
  FORWARDED=127.0.0.1:$port
}

# talk holds the conversation: from the network of the node with the local
# cluster, through a port-forward with another one.
talk() {
  local service port proxy ledger
  service=$(k -n "$NAMESPACE" get bp -o jsonpath='{.items[0].metadata.name}')
  port=$(k -n "$NAMESPACE" get service "$service" -o jsonpath='{.spec.ports[0].port}')
  CAUSEWAY_CLIENT_KEY=$(client_key)
  export CAUSEWAY_CLIENT_KEY
  step "A conversation through Service $service, streamed"
  if [ "$CLUSTER" = local ]; then
    proxy=$(k -n "$NAMESPACE" get service "$service" -o jsonpath='{.spec.clusterIP}'):$port
    ledger=$(k -n "$NAMESPACE" get service upstream -o jsonpath='{.spec.clusterIP}'):8443
    say "    http://$proxy/v1 from inside the cluster's network"
    inside "$BIN/talk" -proxy "http://$proxy/v1" -ledger "https://$ledger/_ledger" -ca "$WORK/ca.crt" -server-name localhost
  else
    forward "$service" "$port"
    proxy=$FORWARDED
    forward upstream 8443
    ledger=$FORWARDED
    say "    http://$proxy/v1, forwarded to the Service"
    "$BIN/talk" -proxy "http://$proxy/v1" -ledger "https://$ledger/_ledger" -ca "$WORK/ca.crt"
  fi
}

show_resources() {
  step "kubectl get ap,cp,bp,brep"
  k -n "$NAMESPACE" get ap,cp,bp,brep
  local states
  states=$(k -n "$NAMESPACE" get ap,cp,bp -o jsonpath="$READY")
  ! tr ' ' '\n' <<<"$states" | grep . | grep -vqE '=True$' || fail "not every resource is Ready: $states"
}
