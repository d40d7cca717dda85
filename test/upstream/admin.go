package upstream

import (
	"io"
	"net/http"
)

// maxScript bounds a script sent to the server, in bytes.
const maxScript = 64 << 20

// admin serves the paths of the test itself; they need no token.
func (s *Server) admin(w http.ResponseWriter, r *http.Request) {
	switch r.Method + " " + r.URL.Path {
	case "GET /_ledger":
		w.Header().Set("Content-Type", "application/jsonl")
		_ = s.ledger.WriteJSONL(w) // the reader may have gone
	case "DELETE /_ledger":
		s.ledger.Clear()
		w.WriteHeader(http.StatusNoContent)
	case "GET /_duplicates":
		writeJSON(w, http.StatusOK, s.ledger.Duplicates())
	case "GET /_stats":
		writeJSON(w, http.StatusOK, s.Stats())
	case "POST /_release":
		s.Release()
		w.WriteHeader(http.StatusNoContent)
	case "POST /_forget":
		s.Forget()
		w.WriteHeader(http.StatusNoContent)
	case "GET /_health":
		w.WriteHeader(http.StatusNoContent)
	case "GET /_script":
		writeJSON(w, http.StatusOK, s.director.get().public())
	case "POST /_script", "PUT /_script":
		s.replaceScript(w, r)
	default:
		writeJSON(w, http.StatusNotFound, object{"error", "want GET or DELETE /_ledger, GET /_duplicates, GET /_stats, GET /_health, " +
			"GET or POST /_script, POST /_release, POST /_forget"})
	}
}

func (s *Server) replaceScript(w http.ResponseWriter, r *http.Request) {
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxScript))
	if err == nil {
		var script Script
		if script, err = ParseScript(b); err == nil {
			s.install(script)
			w.WriteHeader(http.StatusNoContent)
			return
		}
	}
	writeJSON(w, http.StatusBadRequest, object{"error", err.Error()})
}

// public is the script without credentials.
func (s Script) public() Script {
	accounts := make([]Account, len(s.Accounts))
	for i, a := range s.Accounts {
		a.Token, a.RefreshToken = "", ""
		accounts[i] = a
	}
	s.Accounts = accounts
	return s
}
