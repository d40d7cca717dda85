#!/usr/bin/env bash
# What the local cluster needs of the system: a container runtime with its
# plugins and the network tools that Kubernetes calls. Installs what is missing
# where it can (root, apt-get), and says what it installs; elsewhere it says what
# to install.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

PATH=$PATH:/usr/sbin:/sbin
missing=()
want() { # command package
  have "$1" || missing+=("$2")
}
want containerd containerd
want ctr containerd
want runc runc
cni_plugins >/dev/null || missing+=(containernetworking-plugins)
want iptables iptables
want nft nftables
want conntrack conntrack
want socat socat
want ethtool ethtool
want ip iproute2
want mount mount
want unshare util-linux
want nsenter util-linux
want sysctl procps
want openssl openssl
want curl curl

[ ${#missing[@]} -gt 0 ] || exit 0
mapfile -t missing < <(printf '%s\n' "${missing[@]}" | sort -u)
line="apt-get install -y --no-install-recommends ${missing[*]}"

if ! have apt-get; then
  fail "the local cluster needs what these Debian packages hold: ${missing[*]}" \
    "Install the same from this system's packages, or use CLUSTER=current with another cluster."
elif [ "$(id -u)" != 0 ] || [ -n "${CAUSEWAY_NO_INSTALL:-}" ]; then
  fail "packages are missing: ${missing[*]}" "Install them: $line"
fi

say "Installing Debian packages the local cluster needs: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# shellcheck disable=SC2086 # the line is a list of words
if ! { $line || { apt-get update && $line; }; } >"$log" 2>&1 </dev/null; then
  tail -n 10 "$log" >&2
  fail "apt-get could not install them" "Try it by hand: apt-get update && $line"
fi
