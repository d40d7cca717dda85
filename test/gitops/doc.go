// Package gitops holds hack/argocd/health.lua to what Argo CD should say of resources.
package gitops
