# `make help` lists the targets. The work is done by the scripts in hack/.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Settings that can be given on the command line: make demo CLUSTER=current
export CLUSTER ?= local
export NODES ?= 1
export IMAGE_PREFIX ?= localhost/
export IMAGE_TAG ?= dev

# The same flags as in hack/lib.sh, so that everything shares one build cache.
export CGO_ENABLED ?= 0
ifeq (,$(findstring -trimpath,$(GOFLAGS)))
export GOFLAGS := $(strip -trimpath -buildvcs=false $(GOFLAGS))
endif

##@ General

.PHONY: help
help: ## List the targets
	@awk 'BEGIN { FS = ":.*## " } /^##@/ { printf "\n%s\n", substr($$0, 5) } /^[a-z0-9-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

##@ See it work

.PHONY: try
try: ## A conversation through the proxy, without a cluster and without root
	@hack/try.sh

.PHONY: demo
demo: ## Everything on a Kubernetes cluster (CLUSTER=local needs root; CLUSTER=current uses your kubeconfig)
	@hack/demo.sh

##@ Build

.PHONY: build
build: ## Build the binaries into bin/
	@hack/images.sh --binaries

.PHONY: images
images: ## Build the binaries and their images (tars in bin/images/)
	@hack/images.sh

.PHONY: generate
generate: ## Generate deepcopy methods, apply configurations, CRDs and what charts have of them
	@hack/generate.sh

.PHONY: clean
clean: ## Remove bin/ (the cache of built tools stays: see README.md)
	rm -rf bin

##@ Check

.PHONY: verify
verify: ## Fail if a generated file is not what `make generate` makes
	@hack/verify-generated.sh

.PHONY: verify-charts
verify-charts: ## Fail if the charts and config/ would install different objects (builds Helm and Kubernetes, once)
	@hack/verify-chart-parity.sh

.PHONY: lint
lint: ## Run the linter with the rules of the house (hack/golangci.yml)
	@hack/lint.sh

.PHONY: test
test: verify test-go test-charts test-clients ## All tests that need no cluster: unit, race, envtest, real clients

.PHONY: test-go
test-go: ## Go tests with the race detector, against a real API server where they need one
	@hack/test.sh

.PHONY: test-charts
test-charts: ## Charts and kustomizations: the same objects, installed and removed on a real API server
	@hack/test.sh charts

.PHONY: test-clients
test-clients: ## Real clients (Codex CLI, OpenAI SDKs) through the proxy; needs Node.js
	@hack/test.sh clients

.PHONY: e2e
e2e: demo ## The cluster test

.PHONY: bench
bench: ## Added latency, CPU and memory, beside nginx in the same run (ARGS="-streams 2000")
	@hack/test.sh bench $(ARGS)

.PHONY: lab
lab: ## A stalled account, a greedy client, an upstream that flaps (ARGS="-only flap")
	@hack/test.sh lab $(ARGS)

.PHONY: upgrades
upgrades: ## A bridge on a local cluster under load, upgraded again and again (ACTS=4xupgrade,rollback; needs root)
	@hack/upgrades.sh

##@ Local cluster

.PHONY: assets
assets: ## Build Kubernetes from Go modules, once; print the folder for KUBEBUILDER_ASSETS
	@hack/assets.sh

.PHONY: cluster-up
cluster-up: ## Start a local cluster (NODES=1 or 2; needs root)
	@hack/cluster/up.sh

.PHONY: cluster-load
cluster-load: images ## Build the images and load them into the local cluster
	@hack/cluster/load.sh bin/images/*.tar

.PHONY: cluster-shell
cluster-shell: ## A shell in the local cluster's network, with kubectl
	@hack/cluster/exec.sh

.PHONY: kubectl
kubectl: ## kubectl of the local cluster: make kubectl ARGS="get pods -A"
	@hack/cluster/exec.sh kubectl $(ARGS)

.PHONY: cluster-down
cluster-down: ## Stop the local cluster and remove everything it made
	@hack/cluster/down.sh
