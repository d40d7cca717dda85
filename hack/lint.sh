#!/usr/bin/env bash
# Runs golangci-lint with hack/golangci.yml on the given packages (default: all).
# The linter is built once from its own module (hack/tools/golangci-lint) into
# the cache, keyed by what goes into it.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

MODULE=$ROOT/hack/tools/golangci-lint
need_go
key=$({
  go version
  cat "$MODULE/go.mod" "$MODULE/go.sum"
} | short_digest)
home=$CACHE/golangci-lint-$key

if [ ! -x "$home/golangci-lint" ]; then
  lock "$CACHE/golangci-lint.lock" golangci-lint
fi
if [ ! -x "$home/golangci-lint" ]; then
  say "Building golangci-lint into $home (once; 2 to 3 minutes on two idle cores)"
  tmp=$(mktemp -d "$CACHE/.golangci-lint-XXXXXX")
  build=
  trap '[ -z "$build" ] || kill "$build" 2>/dev/null || true; rm -rf "$tmp"' EXIT
  (cd "$MODULE" && exec go build -v -ldflags "-s -w" -o "$tmp/golangci-lint" github.com/golangci/golangci-lint/v2/cmd/golangci-lint) >"$tmp/log" 2>&1 9>&- &
  build=$!
  watch_build 25 "$tmp/log" golangci-lint "$build" || {
    build=
    explain_build_failure "$tmp/log" golangci-lint
  }
  build=
  rm -f "$tmp/log"
  chmod 755 "$tmp"
  rm -rf "$home"
  mv "$tmp" "$home"
  forget_old golangci-lint
fi
touch "$home"

export GOLANGCI_LINT_CACHE=$CACHE/lint
cd "$ROOT"
[ $# -gt 0 ] || set -- ./...
exec "$home/golangci-lint" run --allow-parallel-runners --config hack/golangci.yml "$@"
