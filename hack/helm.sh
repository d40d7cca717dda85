#!/usr/bin/env bash
# Prints the path of Helm, and builds it if it is missing: once, from its own
# module (hack/tools/helm) into the cache, keyed by what goes into it.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

MODULE=$ROOT/hack/tools/helm
PACKAGE=helm.sh/helm/v3
VERSION=$(sed -n "s#^\t*\(require \)\{0,1\}$PACKAGE \(v[0-9.]*\).*#\2#p" "$MODULE/go.mod")
[ -n "$VERSION" ] || fail "hack/tools/helm/go.mod names no version of $PACKAGE"
# Charts ask Helm which version it is, and without a cluster which Kubernetes it knows.
MINOR=$(sed -n 's#^\tk8s.io/client-go v0\.\([0-9]*\)\..*#\1#p' "$MODULE/go.mod")
LDFLAGS="-s -w -X $PACKAGE/internal/version.version=$VERSION"
for knows in pkg/chartutil pkg/lint/rules; do
  LDFLAGS+=" -X $PACKAGE/$knows.k8sVersionMajor=1 -X $PACKAGE/$knows.k8sVersionMinor=$MINOR"
done

need_go
key=$({
  go version
  echo "$GOFLAGS $CGO_ENABLED $LDFLAGS"
  cat "$MODULE/go.mod" "$MODULE/go.sum"
} | short_digest)
home=$CACHE/helm-$key

if [ ! -x "$home/helm" ]; then
  lock "$CACHE/helm.lock" Helm
fi
if [ ! -x "$home/helm" ]; then
  say "Building Helm $VERSION into $home (once; 3 to 5 minutes on two idle cores)"
  want_space "$(go env GOCACHE)" 1500 "compiling Helm"
  tmp=$(mktemp -d "$CACHE/.helm-XXXXXX")
  build=
  trap '[ -z "$build" ] || kill "$build" 2>/dev/null || true; rm -rf "$tmp"' EXIT
  (cd "$MODULE" && exec go build -v -ldflags "$LDFLAGS" -o "$tmp/helm" "$PACKAGE/cmd/helm") >"$tmp/log" 2>&1 9>&- &
  build=$!
  watch_build 25 "$tmp/log" Helm "$build" || {
    build=
    explain_build_failure "$tmp/log" Helm
  }
  build=
  rm -f "$tmp/log"
  chmod 755 "$tmp"
  rm -rf "$home"
  mv "$tmp" "$home"
  forget_old helm
fi
touch "$home"
echo "$home/helm"
