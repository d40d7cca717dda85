#!/usr/bin/env bash
# etcd, API server, controller manager and scheduler, inside the namespaces.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
use_assets

"$HERE/pki.sh" control-plane
rm -rf "$STATE/etcd"

# The data is thrown away with the cluster, so etcd need not wait for the disk.
daemon etcd "$ASSETS/etcd" --data-dir "$STATE/etcd" --unsafe-no-fsync \
  --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 \
  --listen-peer-urls http://127.0.0.1:2380 --initial-advertise-peer-urls http://127.0.0.1:2380 \
  --initial-cluster default=http://127.0.0.1:2380

daemon kube-apiserver "$ASSETS/kube-apiserver" --etcd-servers=http://127.0.0.1:2379 \
  --bind-address=0.0.0.0 --secure-port=6443 --advertise-address=$NODE_NET.1 \
  --tls-cert-file="$PKI/apiserver.crt" --tls-private-key-file="$PKI/apiserver.key" --client-ca-file="$PKI/ca.crt" \
  --service-cluster-ip-range=$SERVICE_CIDR --allow-privileged=true --profiling=false \
  --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction \
  --service-account-issuer=https://kubernetes.default.svc.cluster.local \
  --service-account-key-file="$PKI/service-account.pub" --service-account-signing-key-file="$PKI/service-account.key" \
  --kubelet-client-certificate="$PKI/apiserver-kubelet.crt" --kubelet-client-key="$PKI/apiserver-kubelet.key" \
  --kubelet-preferred-address-types=InternalIP \
  --requestheader-client-ca-file="$PKI/ca.crt" --requestheader-allowed-names=front-proxy-client \
  --requestheader-username-headers=X-Remote-User --requestheader-group-headers=X-Remote-Group \
  --requestheader-extra-headers-prefix=X-Remote-Extra- \
  --proxy-client-cert-file="$PKI/front-proxy.crt" --proxy-client-key-file="$PKI/front-proxy.key"
await "API server" 90 kube-apiserver kubectl get --raw /readyz

as() { printf -- '--kubeconfig=%s --authentication-kubeconfig=%s --authorization-kubeconfig=%s' "$1" "$1" "$1"; }

# The flexvolume folder would otherwise be made below /usr.
# shellcheck disable=SC2046 # "as" prints three words
daemon kube-controller-manager "$ASSETS/kube-controller-manager" $(as "$PKI/controller-manager.kubeconfig") \
  --leader-elect=false --bind-address=127.0.0.1 --flex-volume-plugin-dir="$STATE/flex" \
  --use-service-account-credentials=true --root-ca-file="$PKI/ca.crt" \
  --service-account-private-key-file="$PKI/service-account.key" \
  --cluster-signing-cert-file="$PKI/ca.crt" --cluster-signing-key-file="$PKI/ca.key" \
  --allocate-node-cidrs=true --cluster-cidr=$POD_CIDR --node-cidr-mask-size=24 --service-cluster-ip-range=$SERVICE_CIDR
# shellcheck disable=SC2046
daemon kube-scheduler "$ASSETS/kube-scheduler" $(as "$PKI/scheduler.kubeconfig") --leader-elect=false --bind-address=127.0.0.1
await "controller manager" 60 kube-controller-manager inside curl -skf https://127.0.0.1:10257/healthz
await "scheduler" 60 kube-scheduler inside curl -skf https://127.0.0.1:10259/healthz
