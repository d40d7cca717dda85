# Shared by the scripts of this folder: source it, do not run it.
# shellcheck shell=bash disable=SC2034
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
CACHE=${CAUSEWAY_CACHE:-${XDG_CACHE_HOME:-${HOME:?set HOME, or CAUSEWAY_CACHE to a folder for what is built once}/.cache}/causeway}

# One set of build flags everywhere. With other flags nothing that one target
# has compiled could be used by the next, and Kubernetes takes a quarter of an
# hour to compile.
export CGO_ENABLED=${CGO_ENABLED:-0}
case " ${GOFLAGS:-} " in
*" -trimpath "*) ;;
*) export GOFLAGS="-trimpath -buildvcs=false${GOFLAGS:+ $GOFLAGS}" ;;
esac

# Progress goes to stderr: stdout belongs to what a script returns.
say() { printf '%s\n' "$*" >&2; }
step() { printf '\n==> %s\n' "$*" >&2; }
fail() {
  printf 'error: %s\n' "$1" >&2
  shift
  [ $# = 0 ] || printf '       %s\n' "$@" >&2
  exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }

need_go() {
  have go || fail "the go command is missing" \
    "Install Go $(sed -n 's/^go //p' "$ROOT/go.mod") or newer: https://go.dev/doc/install"
  # Without a toolchain that is new enough, `go env` itself explains what is wrong.
  (cd "$ROOT" && go env GOVERSION >/dev/null) || fail "this Go is too old for the go line in go.mod" \
    "Install Go $(sed -n 's/^go //p' "$ROOT/go.mod") or newer: https://go.dev/doc/install"
}

# forget_old PREFIX: removes what the cache holds of it and nobody has used for
# two weeks. Users touch what they use.
forget_old() {
  find "$CACHE" -maxdepth 1 -name "$1-*" -type d -mtime +14 -exec rm -rf {} +
}

# want_space FOLDER MEGABYTES WHAT: a warning, no error, because what a cache
# already holds is not needed again.
want_space() {
  local free
  mkdir -p "$1"
  free=$(df -Pm "$1" | awk 'NR == 2 { print $4 }')
  [ "$free" -ge "$2" ] || say "warning: $3 takes up to $2 MB below $1, where $free MB are free;" \
    "CAUSEWAY_CACHE, GOCACHE and GOMODCACHE can point elsewhere"
}

# digest of everything on stdin, short enough for a folder name
short_digest() { sha256sum | cut -c1-16; }

version() {
  (cd "$ROOT" && git describe --tags --always --dirty 2>/dev/null) || echo dev
}

# lock FILE WHAT: one run at a time; waits for another one and says so. File
# descriptor 9 holds it until the script ends, so daemons are started with 9>&-.
lock() {
  mkdir -p "$(dirname "$1")"
  exec 9>"$1"
  if ! flock -n 9; then
    say "$2: another run is at it, waiting for that to end"
    flock 9
  fi
}

# watch_build SECONDS LOG WHAT PID: a line every SECONDS while PID lives, with
# how far it is, read from LOG (`go build -v` names each package it compiles).
# Returns PID's exit code.
watch_build() {
  local every=$1 log=$2 what=$3 pid=$4 start=$SECONDS next
  next=$((start + every))
  while kill -0 "$pid" 2>/dev/null; do
    sleep 1
    [ "$SECONDS" -ge "$next" ] || continue
    next=$((next + every))
    say "$(printf '    %s: %d min %02d s, %d modules fetched, %d packages compiled, now: %s' "$what" \
      $(((SECONDS - start) / 60)) $(((SECONDS - start) % 60)) \
      "$(grep -c '^go: downloading ' "$log" || true)" "$(grep -vc '^go: ' "$log" || true)" "$(tail -n 1 "$log" | grep . || echo checking what is there)")"
  done
  wait "$pid"
}

# explain_build_failure LOG WHAT: the compiler's last lines and what can be done.
explain_build_failure() {
  grep -E '^(#|go: |.*:[0-9]+:[0-9]+: |.*(error|signal|cannot|No space))' "$1" | grep -v '^go: downloading' | tail -n 20 >&2 || true
  if grep -qE 'dial tcp|no such host|i/o timeout|proxyconnect|module lookup disabled' "$1"; then
    fail "$2 did not build: its modules could not be fetched" \
      "This needs the network once (GOPROXY is $(go env GOPROXY)); after that it works without."
  elif grep -q 'No space left' "$1"; then
    fail "$2 did not build: the disk is full" "GOCACHE is $(go env GOCACHE), temporary files are in ${TMPDIR:-/tmp}."
  elif grep -qE 'signal: killed' "$1"; then
    fail "$2 did not build: the system killed the compiler, most likely for want of memory" \
      "The link step of Kubernetes needs about 3.5 GB."
  fi
  fail "$2 did not build (the lines above say why)"
}
