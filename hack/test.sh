#!/usr/bin/env bash
# test.sh            Go tests of the whole module with the race detector
# test.sh clients    the suite that drives real clients (test/clients)
# test.sh bench ...  the benchmark beside nginx (test/bench), with its flags
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
  mapfile -t list < <(packages -v '/test/(clients|e2e|lab)(/|$)')
  CGO_ENABLED=1 go test -race -vet=off -timeout 20m "${list[@]}"
}

clients() {
  local list
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

what=${1:-everyday}
shift || true
case $what in
everyday | clients | bench) "$what" "$@" ;;
*) fail "usage: test.sh [clients|bench]" ;;
esac
