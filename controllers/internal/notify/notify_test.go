package notify

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestARepeatedEventIsHeldBackForAWhile(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	sink := events.NewFakeRecorder(100)
	r := NewRecorder(sink, clock)
	obj := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "a"}}
	e := Event{Reason: "Broken", Action: "Test", Note: "text"}

	r.Send(obj, e, e)
	clock.SetTime(clock.Now().Add(quiet - time.Second))
	r.Send(obj, e)
	if got := len(sink.Events); got != 1 {
		t.Errorf("got %d events, want 1", got)
	}
	other := e
	other.Note = "other text"
	r.Send(obj, other)
	r.Send(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "b"}}, e)
	clock.SetTime(clock.Now().Add(time.Second))
	r.Send(obj, e)
	if got := len(sink.Events); got != 4 {
		t.Errorf("got %d events, want 4: another note, another object, and the first one again", got)
	}
}

func TestANumberInANoteMakesNoNews(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	sink := events.NewFakeRecorder(100)
	r := NewRecorder(sink, clock)
	obj := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "a"}}
	for n := range 10 {
		r.Send(obj, Event{Reason: "Opened", Action: "Test", Note: fmt.Sprint(n, " are open"), Topic: "sessions"})
	}
	r.Send(obj, Event{Reason: "Opened", Action: "Test", Note: "1 is open", Topic: "routes"})
	if got := len(sink.Events); got != 2 {
		t.Errorf("got %d events, want one about each topic", got)
	}
}

func TestMemoryOfEventsIsBounded(t *testing.T) {
	r := NewRecorder(&events.FakeRecorder{}, clocktesting.NewFakePassiveClock(time.Now()))
	for i := range 3 * maxRemembered {
		r.due(sentKey{uid: "a", topic: fmt.Sprint(i)})
	}
	if got := len(r.sent); got > maxRemembered {
		t.Errorf("got %d remembered events, want at most %d", got, maxRemembered)
	}
}
