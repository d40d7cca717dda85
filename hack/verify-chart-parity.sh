#!/usr/bin/env bash
# Fails if the charts and config/ would install different objects:
#
#   charts with scope.mode=Cluster   = config/default
#   charts with their default values = config/namespaced
#
# Both are compared object by object, without the labels that say who installed them.
# The Namespace itself is left out: Helm makes it with --create-namespace.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

need_go
HELM=$("$ROOT/hack/helm.sh")
KUBECTL=$("$ROOT/hack/assets.sh")/kubectl
cd "$ROOT"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
go build -o "$work/objects" ./hack/objects
failed=

# charts NAME ARGS...: what Helm installs, one file per object, in $work/NAME-charts
charts() {
  local name=$1 chart
  shift
  mkdir -p "$work/$name-charts"
  for chart in causeway-crds causeway; do
    local args=()
    [ "$chart" = causeway-crds ] || args=("$@")
    "$HELM" template "$chart" "charts/$chart" --namespace causeway-system ${args[@]+"${args[@]}"} >"$work/$chart.yaml" ||
      fail "Helm cannot render charts/$chart (the lines above say why)"
    "$work/objects" "$work/$name-charts" <"$work/$chart.yaml"
  done
}

# same NAME FOLDER: compares with a kustomization
same() {
  mkdir -p "$work/$1-config"
  "$KUBECTL" kustomize "$2" >"$work/config.yaml" || fail "$2 does not build (the lines above say why)"
  "$work/objects" "$work/$1-config" <"$work/config.yaml"
  rm -f "$work/$1-config"/Namespace_*
  if (cd "$work" && diff -ruN "$1-config" "$1-charts" | sed -E '/^diff /d; s/^((---|\+\+\+) [^\t]*)\t.*/\1/'); then
    say "$2 and the charts install the same $(find "$work/$1-config" -type f | wc -l) objects"
  else
    say "$2 (-) and the charts (+) install different objects"
    failed=yes
  fi
}

charts cluster --set scope.mode=Cluster
same cluster config/default
charts namespaced
same namespaced config/namespaced
[ -z "$failed" ] || fail "the charts and config/ differ" \
  "What both share is copied by 'make generate'; Deployment, Service and NetworkPolicy are in charts/causeway/templates and in config/manager."
