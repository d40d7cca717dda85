// Package effective turns manifests into what proxies do: it judges them,
// applies defaults and resolves Secrets. It is pure: it reads no clock and does
// no IO, and equal input gives equal output.
//
// The operator and the standalone proxy share it. What the API server checks by
// schema and CEL is checked here once more, with the same words, because a proxy
// that reads manifests from a folder has no API server in front of it.
//
// No error or message of this package quotes a value that may be secret.
package effective
