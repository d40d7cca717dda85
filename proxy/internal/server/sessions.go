package server

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"

	"github.com/causeway-dev/causeway/proxy/internal/session"
)

// Limits of one answer. A thousand sessions are 400 KiB.
const (
	defaultSessions = 100
	maxSessions     = 1000
)

// Sessions is what the ops port shows of sessions. It is read from memory.
type Sessions interface {
	// Views are up to limit sessions, newest activity first, and how many there
	// are in all.
	Views(limit int) (views []session.View, total int)
	// Detail is the session of a key as Views shows it.
	Detail(key string) (session.Detail, bool)
}

// shownKey and shownModel are the forms of what is shown. A model is named by a
// client, so that what does not look like a name is none.
var (
	shownKey   = regexp.MustCompile(`^[0-9a-f]{12}$`)
	shownModel = regexp.MustCompile(`^[A-Za-z0-9][-A-Za-z0-9._:/@+]{0,99}$`)
)

func (o Ops) sessions(w http.ResponseWriter, r *http.Request) {
	limit := defaultSessions
	if text := r.URL.Query().Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxSessions {
			opsError(w, http.StatusBadRequest, "invalid_limit", fmt.Sprintf("limit must be a number from 1 to %d.", maxSessions))
			return
		}
		limit = n
	}
	views, total := o.Sessions.Views(limit)
	items := make([]session.View, 0, min(len(views), limit))
	for _, v := range views[:min(len(views), limit)] {
		items = append(items, presentable(v))
	}
	writeJSON(w, http.StatusOK, map[string]any{"total": total, "items": items})
}

func (o Ops) session(w http.ResponseWriter, r *http.Request) {
	key := r.PathValue("key")
	if !shownKey.MatchString(key) {
		opsError(w, http.StatusNotFound, "session_not_found",
			"A session is named by 12 hex digits: GET /admin/v1/sessions lists those of this proxy.")
		return
	}
	detail, ok := o.Sessions.Detail(key)
	if !ok {
		opsError(w, http.StatusNotFound, "session_not_found", fmt.Sprintf(
			"This proxy has no session %s: GET /admin/v1/sessions lists those it has; another replica may own it.", key))
		return
	}
	detail.View = presentable(detail.View)
	if detail.Attempts == nil {
		detail.Attempts = []session.AttemptView{}
	}
	writeJSON(w, http.StatusOK, detail)
}

func presentable(v session.View) session.View {
	if !shownModel.MatchString(v.Model) {
		v.Model = ""
	}
	return v
}

// opsError answers people and scripts, in the form of the data port's errors.
func opsError(w http.ResponseWriter, status int, code, message string) {
	writeJSON(w, status, map[string]any{"error": map[string]string{"code": code, "message": message}})
}
