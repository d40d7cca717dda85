package conditions

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var (
	early = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	late  = early.Add(time.Hour)
)

func TestSetKeepsTheTransitionTimeWhileTheStatusStays(t *testing.T) {
	before := From(nil, 1, early)
	before.True("A", "Fine", "old text")
	before.True("B", "Fine", "text")

	after := From(before.Conditions(), 2, late)
	after.True("A", "Better", "new text")
	after.False("B", "Broken", "text")

	a, b := after.Find("A"), after.Find("B")
	if !a.LastTransitionTime.Time.Equal(early) || a.Message != "new text" || a.ObservedGeneration != 2 {
		t.Errorf("same status: got %+v, want the old time, the new text and generation", a)
	}
	if !b.LastTransitionTime.Time.Equal(late) {
		t.Errorf("other status: got time %v, want %v", b.LastTransitionTime, late)
	}
}

func TestConditionsThatAreNotSetAgainAreDropped(t *testing.T) {
	before := From(nil, 1, early)
	before.True("Stalled", "Broken", "text")
	if got := From(before.Conditions(), 1, late).Conditions(); len(got) != 0 {
		t.Errorf("got %v, want none", got)
	}
}

func TestSummarize(t *testing.T) {
	type part struct {
		status metav1.ConditionStatus
		reason string
	}
	for name, tc := range map[string]struct {
		parts      []part
		wantStatus metav1.ConditionStatus
		wantReason string
	}{
		"all true":               {[]part{{"True", "A"}, {"True", "B"}}, "True", "Ready"},
		"first false is copied":  {[]part{{"True", "A"}, {"False", "B"}, {"False", "C"}}, "False", "B"},
		"false goes before both": {[]part{{"Unknown", "A"}, {"False", "B"}}, "False", "B"},
		"unknown is no success":  {[]part{{"True", "A"}, {"Unknown", "B"}}, "Unknown", "B"},
	} {
		t.Run(name, func(t *testing.T) {
			l := From(nil, 1, early)
			var names []string
			for i, p := range tc.parts {
				name := string(rune('P' + i))
				names = append(names, name)
				l.Set(name, p.status, p.reason, "text")
			}
			l.Summarize("Ready", "Ready", "text", names...)
			if got := l.Find("Ready"); got.Status != tc.wantStatus || got.Reason != tc.wantReason {
				t.Errorf("got %s/%s, want %s/%s", got.Status, got.Reason, tc.wantStatus, tc.wantReason)
			}
		})
	}
}

func TestLongMessagesAreCutAtARune(t *testing.T) {
	l := From(nil, 1, early)
	l.True("A", "Fine", strings.Repeat("ü", 400))
	got := l.Find("A").Message
	if len(got) > maxMessage || !utf8.ValidString(got) {
		t.Errorf("got %d bytes, valid %v, want at most %d valid ones", len(got), utf8.ValidString(got), maxMessage)
	}
}
