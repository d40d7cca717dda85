#!/usr/bin/env bash
# Copies into the charts what config/ says, so that there is one truth:
#
#   config/crd/bases      -> charts/causeway-crds/templates
#   rules of config/rbac, config/policy, config/flowcontrol -> charts/causeway/files
#
#   hack/generate-charts.sh [ROOT]
#
# ROOT is the tree to work on; unset means this repository. `make generate` runs it.
set -euo pipefail

root=${1:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)}
cd "$root"
crds=charts/causeway-crds/templates
files=charts/causeway/files
source=

head_of() { printf '# Made by hack/generate-charts.sh from %s: change it there.\n' "$1"; }

# no_template fails on what Helm would take for an instruction.
no_template() {
	if grep -n '{{' "$1" >&2; then
		echo "error: $1 holds {{, which Helm would evaluate: write it another way" >&2
		exit 1
	fi
}

# rules_of FILE prints the rules of a role with the comments that say why.
rules_of() {
	head_of "$1"
	sed -n '/^rules:$/,$p' "$1" | grep . || {
		echo "error: $1 has no line 'rules:'" >&2
		exit 1
	}
}

echo "generating what charts and config share" >&2
mkdir -p "$crds" "$files"
rm -f "$crds"/*.yaml "$files"/*.yaml

for source in config/crd/bases/*.yaml; do
	no_template "$source"
	{
		head_of "$source"
		# Uninstalling the chart must not delete every pool and bridge there is.
		sed -e '/^---$/d' \
			-e '0,/^  annotations:$/s//  labels:\n    app.kubernetes.io\/name: causeway-operator\n    app.kubernetes.io\/part-of: causeway\n  annotations:\n    helm.sh\/resource-policy: keep/' \
			"$source"
	} >"$crds/$(basename "$source" | sed 's/^causeway\.dev_//')"
done
grep -L 'helm.sh/resource-policy: keep' "$crds"/*.yaml | grep . >&2 && {
	echo "error: these would be deleted with the chart: their source has no metadata.annotations" >&2
	exit 1
}
digest=$(cat config/crd/bases/*.yaml | sha256sum | cut -c1-12)
sed -i "s/^appVersion: .*/appVersion: v1alpha1-$digest/" charts/causeway-crds/Chart.yaml

rules_of config/rbac/role.yaml >"$files/operator-rules.yaml"
rules_of config/rbac/leader_election_role.yaml >"$files/leader-election-rules.yaml"
for source in config/rbac/user_roles.yaml config/policy/activation.yaml config/policy/bridgereplica.yaml config/flowcontrol/reports.yaml; do
	case $source in
	config/rbac/*) name=user-roles.yaml ;;
	*) name=$(basename "$(dirname "$source")")-$(basename "$source") ;;
	esac
	{ head_of "$source" && cat "$source"; } >"$files/$name"
done
