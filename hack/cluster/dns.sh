#!/usr/bin/env bash
# Cluster DNS: a process of node 1 behind the Service address the kubelets tell
# their pods.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
use_assets

daemon dns "$ASSETS/../kt" dns --kubeconfig "$ADMIN" --listen $NODE_NET.1:53
kubectl apply -f - >/dev/null <<EOF
apiVersion: v1
kind: Service
metadata: {name: kube-dns, namespace: kube-system}
spec:
  clusterIP: $DNS_SERVICE_IP
  ports: [{name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 53, protocol: TCP}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: kube-dns-local, namespace: kube-system, labels: {kubernetes.io/service-name: kube-dns}}
addressType: IPv4
endpoints: [{addresses: ["$NODE_NET.1"]}]
ports: [{name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 53, protocol: TCP}]
EOF
