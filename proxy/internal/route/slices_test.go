package route

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func endpoint(pod, address string, change ...func(*discoveryv1.Endpoint)) discoveryv1.Endpoint {
	e := discoveryv1.Endpoint{
		Addresses: []string{address}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: pod},
		Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true), Serving: ptr.To(true), Terminating: ptr.To(false)},
	}
	for _, c := range change {
		c(&e)
	}
	return e
}

func unready(e *discoveryv1.Endpoint) { e.Conditions.Ready = ptr.To(false) }

func slice(name string, family discoveryv1.AddressType, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: "chat-blue"}},
		AddressType: family, Endpoints: endpoints,
	}
}

func TestMembersAreTheReadyPods(t *testing.T) {
	got := membersOf([]*discoveryv1.EndpointSlice{
		slice("six", discoveryv1.AddressTypeIPv6, endpoint("both", "fd00::1"), endpoint("six", "fd00::6")),
		slice("four", discoveryv1.AddressTypeIPv4,
			endpoint("both", "10.0.0.1"),
			endpoint("unready", "10.0.0.2", unready),
			// publishNotReadyAddresses makes ready what is going.
			endpoint("going", "10.0.0.3", func(e *discoveryv1.Endpoint) { e.Conditions.Terminating = ptr.To(true) }),
			endpoint("unsaid", "10.0.0.4", func(e *discoveryv1.Endpoint) { e.Conditions = discoveryv1.EndpointConditions{} }),
			endpoint("no pod", "10.0.0.5", func(e *discoveryv1.Endpoint) { e.TargetRef = nil }),
			endpoint("a node", "10.0.0.6", func(e *discoveryv1.Endpoint) { e.TargetRef.Kind = "Node" }),
			endpoint("nowhere", "", func(e *discoveryv1.Endpoint) { e.Addresses = nil }),
			endpoint("moves", "10.0.0.9"),
		),
		slice("more", discoveryv1.AddressTypeIPv4, endpoint("moves", "10.0.0.8"), endpoint("both", "10.0.0.1")),
		slice("names", discoveryv1.AddressTypeFQDN, endpoint("named", "example.com")),
	}, 8081)
	want := []Member{
		{"both", "10.0.0.1:8081"}, {"moves", "10.0.0.8:8081"}, {"six", "[fd00::6]:8081"}, {"unsaid", "10.0.0.4:8081"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestOnlyChangesAreTold(t *testing.T) {
	var told [][]Member
	m := &mirror{byName: map[string]*discoveryv1.EndpointSlice{}, port: 1, changed: func(list []Member) { told = append(told, list) }}
	one := slice("one", discoveryv1.AddressTypeIPv4, endpoint("a", "10.0.0.1"))
	two := slice("two", discoveryv1.AddressTypeIPv4, endpoint("b", "10.0.0.2"))
	for i, step := range []struct {
		do   func() error
		want int // told so far
	}{
		{func() error { return m.Replace(nil, "1") }, 1}, // that there is nobody is news
		{func() error { return m.Replace([]any{one}, "2") }, 2},
		{func() error { return m.Update(one.DeepCopy()) }, 2},
		{func() error { return m.Add(two) }, 3},
		{func() error { return m.Replace([]any{two, one}, "3") }, 3},
		{func() error { return m.Delete(one) }, 4},
		{func() error { return m.Resync() }, 4},
	} {
		if err := step.do(); err != nil || len(told) != step.want {
			t.Fatalf("step %d: told %d times, want %d; %v", i, len(told), step.want, err)
		}
	}
	if diff := cmp.Diff([]Member{{"b", "10.0.0.2:1"}}, told[3]); diff != "" {
		t.Error(diff)
	}
	for _, err := range []error{m.Add("x"), m.Update("x"), m.Delete("x"), m.Replace([]any{"x"}, "4")} {
		if err == nil {
			t.Error("took a string for a slice")
		}
	}
}
