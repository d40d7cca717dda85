// Package clients has tests only. They run unmodified clients as processes of
// their own (the Codex CLI, and the OpenAI SDKs for Node and Go) against a proxy
// in front of the scripted upstream, and read in its ledger what arrived there.
// See README.md.
package clients
