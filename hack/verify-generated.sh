#!/usr/bin/env bash
# Fails if a generated file differs from what hack/generate.sh makes of the types.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT

mkdir -p "$copy/hack" "$copy/config"
cp "$root/go.mod" "$root/go.sum" "$copy/"
cp "$root/hack/boilerplate.go.txt" "$copy/hack/"
cp -r "$root/api" "$copy/api"
cp -r "$root"/config/{crd,rbac,policy,flowcontrol} "$copy/config/"
cp -r "$root/charts" "$copy/charts"

"$root/hack/generate.sh" "$copy"

failed=0
for path in api/v1alpha1 api/README.md config/crd charts; do
	diff -ru "$root/$path" "$copy/$path" || failed=1
done
if [ "$failed" -ne 0 ]; then
	echo "generated files are out of date: run hack/generate.sh and commit the result" >&2
	exit 1
fi
echo "generated files are up to date" >&2
