#!/usr/bin/env bash
# Generates what follows from the Go types of api/v1alpha1: deepcopy methods,
# apply configurations, CustomResourceDefinitions and the tables of api/README.md;
# and, from config/, what the charts have in common with it.
#
#   hack/generate.sh [ROOT]
#
# ROOT is the tree to write to; unset means this repository. The tools are pinned
# in hack/tools/controller-gen/go.mod.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
root=${1:-$here}
tools=$here/hack/tools/controller-gen
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT

echo "building controller-gen (about a minute the first time)" >&2
go -C "$tools" build -o "$bin/controller-gen" sigs.k8s.io/controller-tools/cmd/controller-gen
go -C "$tools" build -o "$bin/" ./trim ./apidoc

cd "$root"
echo "generating deepcopy, apply configurations and CRDs" >&2
rm -rf config/crd/bases api/v1alpha1/applyconfiguration
header=headerFile=hack/boilerplate.go.txt
"$bin/controller-gen" "object:$header" paths=./api/v1alpha1
"$bin/controller-gen" "applyconfiguration:$header" paths=./api/v1alpha1
"$bin/controller-gen" crd paths=./api/v1alpha1 output:crd:dir=config/crd/bases
"$bin/trim" config/crd/bases/causeway.dev_bridgepolicies.yaml \
	spec.pod.affinity spec.pod.tolerations spec.pod.topologySpreadConstraints
"$bin/apidoc" api/README.md config/crd/bases/causeway.dev_{accountpools,circuitpolicies,bridgepolicies,bridgereplicas}.yaml
"$here/hack/generate-charts.sh" .
