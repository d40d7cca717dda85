#!/usr/bin/env bash
# The whole thing on a real Kubernetes: cluster, CRDs, operator, config/samples,
# proxies, and a conversation through the Service. Cleans up after itself.
#   CLUSTER=local    a cluster of its own on this machine (default; needs root)
#   CLUSTER=current  the cluster of the current kubeconfig (kind, a real one)
#   KEEP=1           leaves everything up, to look around in
#   NODES=2          two nodes (local only)
#   IMAGE_PREFIX, IMAGE_TAG   names of the images, for a cluster that pulls them
CLUSTER=${CLUSTER:-local}
export CLUSTER_NAME=${CLUSTER_NAME:-demo} IMAGE_PREFIX=${IMAGE_PREFIX:-localhost/} IMAGE_TAG=${IMAGE_TAG:-dev}
# shellcheck disable=SC2034 # of steps.sh
TITLE=demo
. "$(dirname "${BASH_SOURCE[0]}")/demo/steps.sh"

begin
start_cluster
load_images
install_operator
apply_samples
wait_ready "Waiting for the proxies"
talk
wait_ready "Checking that all is still Ready"
show_resources
