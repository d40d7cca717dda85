package session

import "time"

// Overview is the state of all sessions of this replica at one moment. Keys are
// shown as 12 hex digits of their digest.
type Overview struct {
	// Active sessions have a turn; Idle ones keep a socket warm; Draining ones
	// finish their turn and end; Quarantined ones do not use their anchor.
	Active, Idle, Draining, Quarantined int
	// OldestTurn is the age of the oldest live turn; 0 = none.
	OldestTurn time.Duration
	// Open and HalfOpen count retry circuits that are not closed.
	Open, HalfOpen int
	// Circuits are those that stay longest, at most 32, the longest first.
	Circuits []CircuitView
	// Quarantines are the newest, at most 5, newest first.
	Quarantines []QuarantineView
}

// CircuitView is a retry circuit that is not closed.
type CircuitView struct {
	Key      string
	HalfOpen bool
	// Reason is the class of the newest strike, one CamelCase word.
	Reason string
	// Until is when the state ends at the latest; zero = with the next turn.
	Until time.Time
}

// QuarantineView is a session whose anchor is not used.
type QuarantineView struct {
	Key string
	// Reason in one CamelCase word: AnchorDenied, Wedged, Eventless, CircuitOpened.
	Reason string
	Since  time.Time
	// Until is when an untouched record is forgotten.
	Until time.Time
}

// View is one session for the admin port. It holds nothing that a client sent.
type View struct {
	Key     string `json:"key"`
	Kind    string `json:"kind"`
	State   string `json:"state"` // active, idle, draining
	Account string `json:"account,omitempty"`
	Model   string `json:"model,omitempty"`
	// Anchor is none, good, suspect or dead.
	Anchor  string `json:"anchor"`
	Strikes int    `json:"strikes"`
	// Circuit is closed, open, half_open or probing.
	Circuit      string     `json:"circuit"`
	CircuitUntil *time.Time `json:"circuitUntil,omitempty"`
	Turns        int        `json:"turns"`
	// Owned says whether the store knows this replica as the owner.
	Owned     bool      `json:"owned"`
	Epoch     int64     `json:"epoch,omitempty"`
	Version   int64     `json:"version"`
	UpdatedAt time.Time `json:"updatedAt"`
}

// Detail is one session with its last attempts, oldest first.
type Detail struct {
	View
	Attempts []AttemptView `json:"attempts"`
}

// AttemptView is what is kept of an attempt after its verdict.
type AttemptView struct {
	Turn    string    `json:"turn"`
	Attempt int       `json:"attempt"`
	At      time.Time `json:"at"`
	Account string    `json:"account,omitempty"`
	Class   string    `json:"class"`
	// Anchor is the provenance: none, client, injected.
	Anchor string   `json:"anchor"`
	Facts  []string `json:"facts"`
	// Verdict is the row of the verdict table.
	Verdict string `json:"verdict"`
	Strike  string `json:"strike,omitempty"`
	// Recovery is what was done about it; empty = nothing.
	Recovery string `json:"recovery,omitempty"`
}
