package deadline

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/causeway-dev/causeway/api/bundle"
)

var policy = bundle.Deadlines{ConnectSeconds: 5, TLSSeconds: 6, ResponseHeaderSeconds: 60, FirstEventSeconds: 120, IdleSeconds: 300,
	CallerMaxSeconds: 7200, CancelGraceSeconds: 1}

func TestLimitsOfAClass(t *testing.T) {
	text := Limits{AdmissionWait: 30 * time.Second, Dial: 5 * time.Second, TLS: 6 * time.Second, WriteBody: time.Minute,
		ResponseHeader: time.Minute, FirstEvent: 2 * time.Minute, StreamIdle: 5 * time.Minute, CallerMax: 2 * time.Hour, CancelGrace: time.Second}
	media, whole := text, text
	media.ResponseHeader, media.FirstEvent = 5*time.Minute, 5*time.Minute
	whole.Total = 10 * time.Minute
	patient := policy
	patient.FirstEventSeconds, patient.RequestSeconds, patient.ResponseHeaderSeconds = 900, 1800, 0
	long := media
	long.FirstEvent, long.Total, long.ResponseHeader = 15*time.Minute, 30*time.Minute, 0
	for name, tt := range map[string]struct {
		policy bundle.Deadlines
		class  Class
		stream bool
		want   Limits
	}{
		"text":                             {policy, Text, true, text},
		"media begins late":                {policy, Media, true, media},
		"an answer in one piece":           {policy, Text, false, whole},
		"the policy is longer than media":  {patient, Media, true, long},
		"the policy bounds the whole turn": {patient, Media, false, long},
	} {
		t.Run(name, func(t *testing.T) {
			got := For(tt.policy, 30*time.Second, tt.class, tt.stream)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestWhatHasLeftWhenAPhaseRunsOut(t *testing.T) {
	for k, want := range map[Kind]string{
		InboundHeader: "none", InboundBody: "none", AdmissionWait: "none", Dial: "none", TLS: "none",
		WriteBody: "partial", ResponseHeader: "sent", FirstEvent: "sent", StreamIdle: "acked", Total: "", CallerMax: "", CancelGrace: "",
	} {
		if got := k.Dispatch(); got != want {
			t.Errorf("%s: %q, want %q", k, got, want)
		}
	}
}

func TestBudgetOfATurn(t *testing.T) {
	start := time.Now()
	for name, tt := range map[string]struct {
		header  map[string]string
		stream  bool
		total   time.Duration
		want    time.Duration // 0 = none
		kind    Kind
		source  Source
		clamped bool
	}{
		"nobody bounds a stream":               {stream: true},
		"the policy does":                      {stream: true, total: time.Hour, want: time.Hour, kind: Total, source: Operator},
		"the caller does":                      {header: map[string]string{TimeoutHeader: "1500"}, stream: true, want: 1500 * time.Millisecond, kind: Total, source: Caller},
		"the caller's is shorter":              {header: map[string]string{TimeoutHeader: " 50 "}, total: time.Hour, want: 50 * time.Millisecond, kind: Total, source: Caller},
		"the policy's is shorter":              {header: map[string]string{TimeoutHeader: "3600001"}, total: time.Hour, want: time.Hour, kind: Total, source: Operator},
		"both are equal":                       {header: map[string]string{TimeoutHeader: "3600000"}, total: time.Hour, want: time.Hour, kind: Total, source: Operator},
		"as long as a caller may ask for":      {header: map[string]string{TimeoutHeader: "7200000"}, want: 2 * time.Hour, kind: Total, source: Caller},
		"clamped":                              {header: map[string]string{TimeoutHeader: "7200001"}, want: 2 * time.Hour, kind: CallerMax, source: Operator, clamped: true},
		"clamped, and the policy is shorter":   {header: map[string]string{TimeoutHeader: "7200001"}, total: time.Hour, want: time.Hour, kind: Total, source: Operator, clamped: true},
		"beyond what a duration holds":         {header: map[string]string{TimeoutHeader: "9223372036854775807"}, want: 2 * time.Hour, kind: CallerMax, source: Operator, clamped: true},
		"an SDK that waits for the whole":      {header: map[string]string{"X-Stainless-Timeout": "30"}, want: 30 * time.Second, kind: Total, source: Caller},
		"an SDK that reads":                    {header: map[string]string{"X-Stainless-Read-Timeout": "2.5"}, want: 2500 * time.Millisecond, kind: Total, source: Caller},
		"an SDK's timer ends with the head":    {header: map[string]string{"X-Stainless-Timeout": "30"}, stream: true},
		"an explicit wish outranks the SDK":    {header: map[string]string{TimeoutHeader: "9000", "X-Stainless-Timeout": "1"}, want: 9 * time.Second, kind: Total, source: Caller},
		"an SDK that means no limit":           {header: map[string]string{"X-Stainless-Timeout": "inf"}, want: 2 * time.Hour, kind: CallerMax, source: Operator, clamped: true},
		"an SDK that makes no sense":           {header: map[string]string{"X-Stainless-Timeout": "NaN", "X-Stainless-Read-Timeout": "-1"}},
		"of two from an SDK the sensible one":  {header: map[string]string{"X-Stainless-Timeout": "soon", "X-Stainless-Read-Timeout": "4"}, want: 4 * time.Second, kind: Total, source: Caller},
		"an SDK's zero is no limit":            {header: map[string]string{"X-Stainless-Timeout": "0"}},
		"an SDK's is clamped like any other's": {header: map[string]string{"X-Stainless-Timeout": "7201"}, want: 2 * time.Hour, kind: CallerMax, source: Operator, clamped: true},
	} {
		t.Run(name, func(t *testing.T) {
			l := Limits{Total: tt.total, CallerMax: 2 * time.Hour}
			b, err := NewBudget(func(name string) string { return tt.header[name] }, tt.stream, l, start)
			if err != nil {
				t.Fatal(err)
			}
			left, bounded := b.Remaining(start)
			if left != tt.want || bounded != (tt.want > 0) || b.kind != tt.kind || b.source != tt.source || b.Clamped != tt.clamped {
				t.Errorf("%v %v %+v", left, bounded, b)
			}
			if b.Due().IsZero() != (tt.want == 0) {
				t.Error(b.Due())
			}
		})
	}
}

func TestAWishThatMakesNoSenseIsRefused(t *testing.T) {
	for _, text := range []string{"0", "-1", "soon", "1.5", "5s", "9223372036854775808", "1e3"} {
		if b, err := NewBudget(func(name string) string { return map[string]string{TimeoutHeader: text}[name] }, true, Limits{}, time.Now()); err == nil {
			t.Errorf("%q: %+v", text, b)
		}
	}
}

// A policy may leave a caller's deadlines unbounded.
func TestNoCallerMaxIsNoClamp(t *testing.T) {
	now := time.Now()
	b, err := NewBudget(func(name string) string { return map[string]string{TimeoutHeader: "72000000"}[name] }, true, Limits{}, now)
	if left, _ := b.Remaining(now); err != nil || left != 20*time.Hour || b.Clamped {
		t.Errorf("%v %v %+v", err, left, b)
	}
}

func TestRemainingEndsAtZero(t *testing.T) {
	now := time.Now()
	b := Budget{due: now}
	for _, at := range []time.Duration{0, 1, time.Hour} {
		if left, bounded := b.Remaining(now.Add(at)); left != 0 || !bounded {
			t.Errorf("%v: %v %v", at, left, bounded)
		}
	}
}
