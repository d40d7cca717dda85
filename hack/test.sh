#!/usr/bin/env bash
# test.sh            Go tests of the whole module with the race detector
# test.sh charts     charts and kustomizations: the same, and installable (test/packaging)
# test.sh clients    the suite that drives real clients (test/clients)
# test.sh bench ...  the benchmark beside nginx (test/bench), with its flags
# test.sh lab ...    load with faults (test/lab), with its flags
#
# Tests do not vet: `make lint` does, once, instead of once per package.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

need_go
cd "$ROOT"

# packages prints those of the module that match (or, with -v, do not match).
packages() { go list ./... | grep -E "$@" || true; }

# find_redis puts a redis-server on PATH: the system's, or the one in Debian's
# package redis-tools, which starts no service. The store is tested against it.
find_redis() {
  local dir=$CACHE/redis server
  have redis-server && return
  PATH=$PATH:$dir
  if have apt-get && [ "$(id -u)" = 0 ] && [ -z "${CAUSEWAY_NO_INSTALL:-}" ] && ! have redis-check-rdb; then
    say "Installing the Debian package redis-tools, to test the store against"
    local install="apt-get install -y --no-install-recommends redis-tools"
    { DEBIAN_FRONTEND=noninteractive $install || { apt-get update && $install; }; } </dev/null >&2 || true
    hash -r
  fi
  # The program is the server when it is called by that name.
  if server=$(command -v redis-check-rdb); then
    mkdir -p "$dir"
    ln -sf "$server" "$dir/redis-server"
    redis-server --version >/dev/null 2>&1 && return
    rm -f "$dir/redis-server"
  fi
  fail "redis-server is missing, and the store is tested against a real one" "Debian: apt-get install redis-server"
}

# race PACKAGE... Go's race detector can break down under testing/synctest, whatever is
# tested (golang/go#78156). What ended in that way, and in no other, is run once more.
race() {
  local log
  log=$(mktemp)
  # shellcheck disable=SC2064 # the file of now
  trap "rm -f '$log'" EXIT
  CGO_ENABLED=1 go test -race -vet=off -timeout 20m "$@" 2>&1 | tee "$log" && return
  grep -q '^ThreadSanitizer: CHECK failed' "$log" || return 1
  ! grep -qE '^(--- FAIL|panic:|WARNING: DATA RACE)|build failed' "$log" || return 1
  say "the race detector itself broke down (golang/go#78156): again"
  CGO_ENABLED=1 go test -race -vet=off -timeout 20m "$@"
}

everyday() {
  local list
  find_redis
  have gcc || have cc || fail "the race detector needs a C compiler" "Debian: apt-get install gcc libc6-dev"
  KUBEBUILDER_ASSETS=$(hack/assets.sh)
  export KUBEBUILDER_ASSETS
  mapfile -t list < <(packages -v '/test/(clients|e2e|lab|packaging)(/|$)')
  race "${list[@]}"
}

charts() {
  CAUSEWAY_HELM=$(hack/helm.sh)
  KUBEBUILDER_ASSETS=$(hack/assets.sh)
  export CAUSEWAY_HELM KUBEBUILDER_ASSETS
  "$CAUSEWAY_HELM" lint --quiet --strict charts/causeway charts/causeway-crds >&2
  hack/verify-chart-parity.sh
  # Helm and kubectl read the files, which go's cache of results does not notice.
  go test -vet=off -count=1 -timeout 10m ./test/packaging
}

clients() {
  local list
  find_redis
  if ! have node || ! have npm; then
    fail "the client tests need Node.js 20 or newer with npm" "https://nodejs.org, or your system's packages"
  fi
  mapfile -t list < <(packages '/test/clients(/|$)')
  [ ${#list[@]} -gt 0 ] || fail "test/clients holds no package"
  CAUSEWAY_CACHE=$CACHE go test -vet=off -count=1 -timeout 20m "${list[@]}"
}

# find_nginx puts an nginx on PATH: the system's, or Debian's package unpacked into
# the cache, which needs no root and starts no service.
find_nginx() {
  local dir=$CACHE/nginx
  have nginx && return
  PATH=$PATH:/usr/sbin:$dir/usr/sbin
  have nginx && return
  if have apt-get && have dpkg; then
    say "Fetching nginx into $dir, to measure beside it"
    mkdir -p "$dir"
    (cd "$dir" && { apt-get -qq download nginx || { apt-get -qq update && apt-get -qq download nginx; }; } &&
      dpkg -x nginx_*.deb . && rm -f nginx_*.deb) >&2 || true
    hash -r
    have nginx && nginx -v 2>/dev/null && return
  fi
  fail "the benchmark runs beside nginx" "Debian: apt-get install nginx"
}

bench() {
  find_nginx
  mkdir -p bin
  say "Building the proxy and the benchmark (the first time takes a minute or two)"
  go build -ldflags "-s -w -X github.com/causeway-dev/causeway/api/version.Version=$(version)" -o bin/causeway-proxy ./proxy/cmd/proxy
  go build -o bin/bench ./test/bench
  bin/bench "$@"
}

lab() {
  find_redis
  mkdir -p bin
  say "Building the proxy and the lab (the first time takes a minute or two)"
  go build -ldflags "-s -w -X github.com/causeway-dev/causeway/api/version.Version=$(version)" -o bin/causeway-proxy ./proxy/cmd/proxy
  go build -o bin/lab ./test/lab
  bin/lab "$@"
}

what=${1:-everyday}
shift || true
case $what in
everyday | charts | clients | bench | lab) "$what" "$@" ;;
*) fail "usage: test.sh [charts|clients|bench|lab]" ;;
esac
