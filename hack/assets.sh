#!/usr/bin/env bash
# Prints the folder with etcd, kube-apiserver and kubectl for KUBEBUILDER_ASSETS,
# and builds what is missing: one binary, kt, that holds a whole Kubernetes. It
# comes from Go modules (hack/k8s) and is kept in the cache, keyed by what goes
# into it, so that this happens once.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

MODULE=$ROOT/hack/k8s
KUBERNETES=$(sed -n 's/^\tk8s.io\/kubernetes \(v[0-9.]*\).*/\1/p' "$MODULE/go.mod")
STAMP=k8s.io/component-base/version
# Without these the API server calls itself v0.0.0-master, and kubectl and Helm
# believe it.
LDFLAGS="-s -w -X $STAMP.gitVersion=$KUBERNETES -X $STAMP.gitMajor=1 -X $STAMP.gitMinor=$(cut -d. -f2 <<<"$KUBERNETES") \
-X $STAMP.gitTreeState=clean -X $STAMP.gitCommit=unknown -X $STAMP.buildDate=1970-01-01T00:00:00Z"
LINKS="etcd kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy kubectl"

need_go
key=$({
  go version
  tr ' ' '\n' <<<"$GOFLAGS" | sort -u
  echo "$CGO_ENABLED $LDFLAGS $LINKS"
  cat "$MODULE/go.mod" "$MODULE/go.sum" "$MODULE"/kt/*.go
} | short_digest)
home=$CACHE/kt-$key

if [ -x "$home/kt" ] && [ -x "$home/assets/kube-apiserver" ]; then
  touch "$home"
  echo "$home/assets"
  exit
fi

lock "$CACHE/kt.lock" "Kubernetes $KUBERNETES"
if [ ! -x "$home/kt" ]; then
  say "Building Kubernetes $KUBERNETES from Go modules into $home"
  say "    This happens once: 15 to 20 minutes on two idle cores, about 5 GB of disk."
  want_space "$CACHE" 300 "the Kubernetes binary"
  want_space "$(go env GOCACHE)" 4500 "compiling Kubernetes"
  want_space "$(go env GOMODCACHE)" 700 "the source of Kubernetes"

  tmp=$(mktemp -d "$CACHE/.kt-XXXXXX")
  build=
  trap '[ -z "$build" ] || kill "$build" 2>/dev/null || true; rm -rf "$tmp"' EXIT

  (cd "$MODULE" && exec go build -v -ldflags "$LDFLAGS" -o "$tmp/kt" ./kt) >"$tmp/log" 2>&1 9>&- &
  build=$!
  watch_build 25 "$tmp/log" "Kubernetes $KUBERNETES" "$build" || {
    build=
    explain_build_failure "$tmp/log" "Kubernetes $KUBERNETES"
  }
  build=
  mkdir "$tmp/assets"
  for name in $LINKS; do ln -s ../kt "$tmp/assets/$name"; done
  rm -f "$tmp/log"
  chmod 755 "$tmp"
  rm -rf "$home"
  mv "$tmp" "$home" # whole or not at all
  forget_old kt
  say "    built in $((SECONDS / 60)) min $((SECONDS % 60)) s"
fi
echo "$home/assets"
