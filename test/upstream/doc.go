// Package upstream simulates the servers a proxy talks to: the Responses API
// over HTTP/SSE and WebSocket, on the platform's paths and on those of the
// ChatGPT backend, with models, quotas and an OAuth issuer.
//
// It is a witness as much as a server. Every dispatch is written to a Ledger
// before anything is answered: account, connection, anchor, a digest of every
// input item and of the whole logical input. A test asks the ledger what the
// proxy really sent, and whether it sent anything twice.
//
// What is answered is decided by a Script: rules that match a request and say
// what to respond and which fault to play. Without a script the server gives
// sensible answers, good enough to drive a real coding agent.
//
// README.md of this folder is the reference of the script.
package upstream
