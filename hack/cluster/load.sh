#!/usr/bin/env bash
# load.sh TAR...: imports images into every node of the local cluster.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
need_root
for config in "$STATE"/containerd-*.toml; do
  name=$(basename "${config#*/containerd-}" .toml)
  name=${name#containerd-}
  for tar in "$@"; do
    inside ctr -a "/run/containerd-$name.sock" -n k8s.io images import "$(realpath "$tar")" >/dev/null
  done
done
