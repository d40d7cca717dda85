#!/usr/bin/env bash
# node.sh N: node number N (1 to 9) with a containerd and a kubelet of its own.
# All nodes share the network namespace, so one kube-proxy, started with node 1,
# serves them all.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
use_assets

n=$1
name=node$n
address=$NODE_NET.$n
socket=/run/containerd-$name.sock
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
plugins=$(cni_plugins) || fail "the CNI plugins are missing" "Run hack/cluster/packages.sh"

"$HERE/pki.sh" node "$name" "$address"
[ "$n" = 1 ] || inside ip addr add "$address/24" dev node0

network() {
  local dir=$STATE/cni-$name
  mkdir -p "$dir"
  cat >"$dir/10-pods.conflist" <<EOF
{"cniVersion": "1.0.0", "name": "pods", "plugins": [
  {"type": "bridge", "bridge": "pods$n", "isGateway": true, "isDefaultGateway": true, "hairpinMode": true, "ipMasq": false,
   "ipam": {"type": "host-local", "dataDir": "/var/lib/cni/$name", "ranges": [[{"subnet": "10.244.$((n - 1)).0/24"}]]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
EOF
}

# containerd_config prints it in the form of the installed version: the sections
# were renamed with containerd 2. restrict_oom_score_adj lets pods start where
# root may not make a process less likely to be killed (no CAP_SYS_RESOURCE).
containerd_config() {
  local images runtime sandbox version=2 bin=bin_dir bins="\"$plugins\"" conf=conf_dir
  case $(containerd --version) in
  *" v2."* | *" 2."*)
    version=3 images=io.containerd.cri.v1.images runtime=io.containerd.cri.v1.runtime
    bin=bin_dirs bins="[\"$plugins\"]"
    sandbox="[plugins.\"$images\".pinned_images]
  sandbox = \"localhost/pause:1\"
[plugins.\"$runtime\"]
  restrict_oom_score_adj = true
[plugins.\"io.containerd.server.v1.grpc\"]
  address = \"$socket\"
[plugins.\"io.containerd.server.v1.ttrpc\"]
  address = \"$socket.ttrpc\""
    ;;
  *)
    runtime=io.containerd.grpc.v1.cri
    sandbox="[plugins.\"$runtime\"]
  sandbox_image = \"localhost/pause:1\"
  restrict_oom_score_adj = true"
    ;;
  esac
  cat <<EOF
version = $version
root = "$STATE/containerd-$name"
state = "/run/containerd-$name"
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
  address = "$socket"
$sandbox
[plugins."$runtime".cni]
  $bin = $bins
  $conf = "$STATE/cni-$name"
[plugins."$runtime".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."$runtime".containerd.runtimes.runc.options]
  SystemdCgroup = false
EOF
}

# cgroups makes the parent of all pods of this node. With cgroup v1 it is one
# folder per controller, and the cpuset ones start empty.
cgroups() {
  local root=/sys/fs/cgroup controller file
  if [ "$(stat -fc %T $root)" = cgroup2fs ]; then
    mkdir -p "$root/$CGROUP-$name"
    return
  fi
  for controller in "$root"/*/cgroup.procs; do mkdir -p "${controller%/*}/$CGROUP-$name"; done
  for file in cpus mems; do
    cat "$root/cpuset/cpuset.$file" >"$root/cpuset/$CGROUP-$name/cpuset.$file" 2>/dev/null || true
  done
}

kubelet_config() {
  cat <<EOF
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: $address
healthzPort: 0
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: "$PKI/ca.crt"}}
authorization: {mode: Webhook}
tlsCertFile: "$PKI/$name.crt"
tlsPrivateKeyFile: "$PKI/$name.key"
containerRuntimeEndpoint: unix://$socket
cgroupDriver: cgroupfs
cgroupRoot: /$CGROUP-$name
failCgroupV1: false
failSwapOn: false
maxOpenFiles: 20000
clusterDomain: cluster.local
clusterDNS: [$DNS_SERVICE_IP]
resolvConf: /dev/null
nodeStatusUpdateFrequency: 2s
serializeImagePulls: false
volumePluginDir: "$STATE/flex"
podLogsDir: /var/log/pods/$name
evictionHard: {memory.available: 100Mi, nodefs.available: "1%", imagefs.available: "1%"}
imageGCHighThresholdPercent: 100
EOF
}

# The kubelet insists on three sysctls, which belong to the whole machine, and
# writes them if they differ. It is shown what it wants to see: files of ours over
# the real ones, in a mount namespace that only the kubelet has. Its volume
# mounts still reach the containers, because only /proc is cut off.
start_kubelet() {
  local wanted=$STATE/sysctl-$name root=/run/kubelet-$name
  mkdir -p "$wanted"
  echo 1 >"$wanted/vm.overcommit_memory"
  echo 10 >"$wanted/kernel.panic"
  echo 1 >"$wanted/kernel.panic_on_oops"
  inside bash -euc "
    mkdir -p $root /var/log/pods/$name
    mount -t tmpfs tmpfs $root
    mount --make-rshared $root"
  kubelet_config >"$STATE/kubelet-$name.yaml"
  # shellcheck disable=SC2016 # expanded inside
  daemon "kubelet-$name" env PATH="$PATH" unshare --mount --propagation unchanged bash -euc '
    mount --make-rprivate /proc
    for file in "$0"/*; do
      key=${file##*/}
      mount --bind "$file" "/proc/sys/${key/./\/}"
    done
    exec "$@"' "$wanted" \
    "$ASSETS/kubelet" --config="$STATE/kubelet-$name.yaml" --kubeconfig="$PKI/$name.kubeconfig" \
    --hostname-override="$name" --node-ip="$address" --root-dir="$root" -v=2
}

start_kube_proxy() {
  cat >"$STATE/kube-proxy.yaml" <<EOF
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: ${PROXY_MODE:-nftables}
clientConnection: {kubeconfig: "$PKI/kube-proxy.kubeconfig"}
clusterCIDR: $POD_CIDR
hostnameOverride: $name
healthzBindAddress: 127.0.0.1:10256
metricsBindAddress: 127.0.0.1:10249
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
nftables: {minSyncPeriod: 100ms, syncPeriod: 30s}
iptables: {minSyncPeriod: 100ms, syncPeriod: 30s}
EOF
  daemon kube-proxy env PATH="$PATH" "$ASSETS/kube-proxy" --config="$STATE/kube-proxy.yaml"
}

network
rm -rf "$STATE/containerd-$name"
mkdir -p "$STATE/containerd-$name"
# overlayfs cannot lie on overlayfs: within a container the images go to memory.
[ "$(stat -fc %T "$STATE")" != overlayfs ] || inside mount -t tmpfs tmpfs "$STATE/containerd-$name"
containerd_config >"$STATE/containerd-$name.toml"
daemon "containerd-$name" env PATH="$PATH" containerd --config "$STATE/containerd-$name.toml"
await "containerd of $name" 60 "containerd-$name" inside ctr -a "$socket" version
inside ctr -a "$socket" -n k8s.io images import "$STATE/pause.tar" >/dev/null
cgroups
start_kubelet
[ "$n" != 1 ] || start_kube_proxy
