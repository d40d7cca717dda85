#!/usr/bin/env bash
# Certificates and kubeconfigs of the local cluster, made anew for each cluster.
#   pki.sh control-plane      CA, API server, controllers, admin
#   pki.sh node NAME ADDRESS  one kubelet
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

DAYS=365
API=https://127.0.0.1:6443

mkdir -p "$PKI"
chmod 700 "$PKI"
cd "$PKI"

new_key() { openssl ecparam -name prime256v1 -genkey -noout -out "$1.key"; }

# certificate NAME SUBJECT [SUBJECT_ALT_NAMES]
certificate() {
  new_key "$1"
  {
    echo "keyUsage=critical,digitalSignature"
    echo "extendedKeyUsage=clientAuth,serverAuth"
    [ -z "${3:-}" ] || echo "subjectAltName=$3"
  } >"$1.ext"
  openssl req -new -key "$1.key" -subj "$2" |
    openssl x509 -req -CA ca.crt -CAkey ca.key -CAcreateserial -days $DAYS -sha256 -extfile "$1.ext" -out "$1.crt" 2>/dev/null
  rm "$1.ext"
}

kubeconfig() {
  cat >"$1.kubeconfig" <<EOF
apiVersion: v1
kind: Config
current-context: local
clusters: [{name: local, cluster: {server: "$API", certificate-authority: "$PKI/ca.crt"}}]
users: [{name: "$1", user: {client-certificate: "$PKI/$1.crt", client-key: "$PKI/$1.key"}}]
contexts: [{name: local, context: {cluster: local, user: "$1"}}]
EOF
}

control_plane() {
  local names user
  new_key ca
  openssl req -x509 -new -key ca.key -sha256 -days $DAYS -subj /CN=causeway-local -out ca.crt \
    -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign 2>/dev/null

  names=DNS:localhost,IP:127.0.0.1,IP:$NODE_NET.1,IP:$API_SERVICE_IP
  names=$names,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local
  certificate apiserver /CN=kube-apiserver "$names"
  certificate apiserver-kubelet /O=system:masters/CN=kube-apiserver-kubelet-client
  certificate front-proxy /CN=front-proxy-client
  certificate admin /O=system:masters/CN=admin
  certificate controller-manager /CN=system:kube-controller-manager
  certificate scheduler /CN=system:kube-scheduler
  certificate kube-proxy /CN=system:kube-proxy
  for user in admin controller-manager scheduler kube-proxy; do kubeconfig $user; done

  # What service account tokens are signed with.
  openssl genrsa -out service-account.key 2048 2>/dev/null
  openssl rsa -in service-account.key -pubout -out service-account.pub 2>/dev/null
}

case ${1:-} in
control-plane) control_plane ;;
node)
  certificate "$2" "/O=system:nodes/CN=system:node:$2" "DNS:$2,IP:$3"
  kubeconfig "$2"
  ;;
*) fail "usage: pki.sh control-plane | node NAME ADDRESS" ;;
esac
