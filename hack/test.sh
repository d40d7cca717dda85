#!/usr/bin/env bash
# test.sh            Go tests of the whole module with the race detector
# test.sh clients    the suite that drives real clients (test/clients)
# test.sh bench      the benchmarks (test/bench)
#
# Tests do not vet: `make lint` does, once, instead of once per package.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

need_go
cd "$ROOT"

# packages prints those of the module that match (or, with -v, do not match).
packages() { go list ./... | grep -E "$@" || true; }

everyday() {
  local list
  have gcc || have cc || fail "the race detector needs a C compiler" "Debian: apt-get install gcc libc6-dev"
  KUBEBUILDER_ASSETS=$(hack/assets.sh)
  export KUBEBUILDER_ASSETS
  mapfile -t list < <(packages -v '/test/(clients|bench|e2e|lab)(/|$)')
  CGO_ENABLED=1 go test -race -vet=off -timeout 20m "${list[@]}"
}

clients() {
  local list
  if ! have node || ! have npm; then
    fail "the client tests need Node.js 20 or newer with npm" "https://nodejs.org, or your system's packages"
  fi
  mapfile -t list < <(packages '/test/clients(/|$)')
  [ ${#list[@]} -gt 0 ] || fail "test/clients holds no package"
  CAUSEWAY_TEST_CLIENTS=1 CAUSEWAY_CACHE=$CACHE go test -vet=off -count=1 -timeout 20m "${list[@]}"
}

bench() {
  local list
  have nginx || PATH=$PATH:/usr/sbin
  have nginx || fail "the benchmarks run beside nginx" "Debian: apt-get install nginx-light"
  mapfile -t list < <(packages '/test/bench(/|$)')
  [ ${#list[@]} -gt 0 ] || fail "test/bench holds no package"
  go test -vet=off -run '^$' -bench . -benchtime 1x -timeout 30m -v "${list[@]}"
}

case ${1:-everyday} in
everyday | clients | bench) "${1:-everyday}" ;;
*) fail "usage: test.sh [clients|bench]" ;;
esac
