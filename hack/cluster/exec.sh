#!/usr/bin/env bash
# exec.sh [COMMAND...]: runs it inside the local cluster's network, where pods,
# Services and the API server can be reached; without a command, a shell.
# KUBECONFIG and PATH are set so that kubectl works.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
need_root
use_assets
export KUBECONFIG=$ADMIN PATH=$ASSETS:$PATH
if [ $# = 0 ]; then
  say "A shell inside the local cluster '$CLUSTER_NAME'; kubectl is at hand, 'exit' leaves."
  set -- "${SHELL:-bash}"
fi
inside "$@"
