#!/usr/bin/env bash
# Causeway without a cluster and without root: builds the proxy and the scripted
# upstream and runs hack/try with them.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
need_go
cd "$ROOT"
if [ ! -x bin/causeway-proxy ]; then
  say "Building the proxy and the scripted upstream (the first time takes a minute or two)"
fi
mkdir -p bin
log=$(mktemp)
trap 'rm -f "$log"' EXIT
build() { # name package
  go build -v -ldflags "-s -w -X github.com/causeway-dev/causeway/api/version.Version=$(version)" -o "bin/$1" "$2" >"$log" 2>&1 &
  watch_build 10 "$log" "$1" $! || explain_build_failure "$log" "$1"
}
build causeway-proxy ./proxy/cmd/proxy
build causeway-upstream ./test/upstream/cmd/causeway-upstream
build try ./hack/try
bin/try -samples config/samples -proxy bin/causeway-proxy -upstream bin/causeway-upstream
