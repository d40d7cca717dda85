package policy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/api/effective"
	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
)

// Texts that a writer can act upon.
const (
	mustNotFall  = "metadata.annotations[causeway.dev/epoch] must be an integer and not below 5, which it was: leave it as it is"
	mustRise     = "metadata.annotations[causeway.dev/epoch] must be above 5, because spec.holderIdentity names another captain"
	mustStay     = "metadata.annotations[causeway.dev/epoch] must stay 5 while spec.holderIdentity names no pod"
	mustBeNear   = "metadata.annotations[causeway.dev/epoch] may rise by 1000000 at most, from 5"
	mustBeHolder = "spec.holderIdentity must be empty, SLOT or SLOT/POD/UID/NONCE"
	mustBeSelf   = "spec.holderIdentity must name the pod whose token writes it, which is chat-green-0"
	mustBeOwn    = "spec.holderIdentity names another pod than that whose token writes it, which is chat-green-0: a pod lets go of its own authority only"
	mustBeBound  = "spec.holderIdentity must name the pod whose token writes it, and this token is bound to none"
	mustCommand  = "metadata.annotations[causeway.dev/next-holder] is the operator's to change: annotate the BridgePolicy with"
	mustBelong   = "metadata.labels[causeway.dev/policy] of an activation Lease must stay: delete the Lease"
)

// state is what of a Lease the policy looks at.
type state struct{ holder, epoch, next string }

func lease(ns, name string, s state) *coordinationv1.Lease {
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: ns, Name: name,
		Labels: map[string]string{v1alpha1.LabelPolicy: "chat"},
	}}
	s.put(l)
	return l
}

func (s state) put(l *coordinationv1.Lease) {
	if l.Annotations == nil {
		l.Annotations = map[string]string{}
	}
	for key, value := range map[string]string{v1alpha1.AnnotationEpoch: s.epoch, v1alpha1.AnnotationNextHolder: s.next} {
		delete(l.Annotations, key)
		if value != "" {
			l.Annotations[key] = value
		}
	}
	l.Spec.HolderIdentity = nil
	if s.holder != "" {
		l.Spec.HolderIdentity = ptr.To(s.holder)
	}
}

// cast is who writes to the Leases of a namespace.
type cast struct {
	ns          string
	green, blue client.Client // proxies chat-green-0 and chat-blue-0, with the tokens of their pods
	unbound     client.Client // the account of the proxies, with a token of no pod
	operator    client.Client // with the token of the operator's pod
	editor      client.Client // a person who may edit Leases and no status of bridges
	greenUID    types.UID
}

func newCast(t *testing.T) cast {
	t.Helper()
	c := cast{ns: namespace(t)}
	proxies := account(t, c.ns, "chat-proxy", leases)
	c.greenUID = pod(t, c.ns, "chat-green-0", proxies.Name)
	c.green = with(t, proxies, "chat-green-0", c.greenUID)
	c.blue = with(t, proxies, "chat-blue-0", pod(t, c.ns, "chat-blue-0", proxies.Name))
	c.unbound = with(t, proxies, "", "")
	operator := account(t, c.ns, "causeway-operator", leases, statuses)
	c.operator = with(t, operator, "operator-0", pod(t, c.ns, "operator-0", operator.Name))
	c.editor = person(t, c.ns, "editor", leases)
	return c
}

// captain is the holderIdentity of chat-green-0.
func (c cast) captain() string {
	return bundle.Holder{Slot: "green", Pod: "chat-green-0", UID: string(c.greenUID), Nonce: "n1"}.String()
}

const blueCaptain = "blue/chat-blue-0/u-b/n0"

// write is one change of a Lease.
type write struct {
	name     string
	old, new state
	by       client.Client
	want     string // words of the refusal; "" = accepted
}

// TestT48_TheEpochNeverFalls: who lowers the epoch by hand, or writes none, is refused,
// whatever rights they have.
func TestT48_TheEpochNeverFalls(t *testing.T) {
	c := newCast(t)
	old := state{holder: blueCaptain, epoch: "5"}
	var writes []write
	for name, by := range map[string]client.Client{"proxy": c.green, "operator": c.operator, "editor": c.editor, "administrator": admin} {
		for _, epoch := range []string{"4", "0", "", "-6", "six", "6.0", "1e9", "6 ", "1000000000000000000"} {
			writes = append(writes, write{fmt.Sprintf("%s writes %q", name, epoch), old, state{blueCaptain, epoch, ""}, by, mustNotFall})
		}
	}
	c.judge(t, writes)
}

// TestTakingAuthorityRaisesTheEpoch: one that stays, or leaps, is refused; one that
// rises is not, because a Lease that was made anew goes on above the fence of the store.
func TestTakingAuthorityRaisesTheEpoch(t *testing.T) {
	c := newCast(t)
	me := c.captain()
	again := strings.Replace(me, "n1", "n2", 1)
	c.judge(t, []write{
		{"from the other slot", state{blueCaptain, "5", "green"}, state{me, "6", "green"}, c.green, ""},
		{"after a release", state{"", "5", "green"}, state{me, "6", "green"}, c.green, ""},
		{"between two captains of the slot", state{"green", "5", ""}, state{me, "6", ""}, c.green, ""},
		{"from another process of the same pod", state{again, "5", ""}, state{me, "6", ""}, c.green, ""},
		{"above the fence of the store", state{"", "5", ""}, state{me, "17", ""}, c.green, ""},
		{"of a Lease without epoch", state{"", "", ""}, state{me, "900", ""}, c.green, ""},
		{"of a Lease that begins", state{"", "0", ""}, state{me, "123456789", ""}, c.green, ""},
		{"with the old epoch", state{blueCaptain, "5", "green"}, state{me, "5", "green"}, c.green, mustRise},
		{"with the old epoch after a release", state{"", "5", ""}, state{me, "5", ""}, c.green, mustRise},
		{"with the old epoch by another process", state{again, "5", ""}, state{me, "5", ""}, c.green, mustRise},
		{"with the old epoch by hand", state{blueCaptain, "5", ""}, state{me, "5", ""}, admin, mustRise},
		{"with no epoch", state{"", "", ""}, state{me, "", ""}, c.green, "must be above 0"},
		{"with a leap", state{blueCaptain, "5", ""}, state{me, "1000006", ""}, c.green, mustBeNear},
	})
}

// TestRenewingAndReleasingKeepTheEpoch.
func TestRenewingAndReleasingKeepTheEpoch(t *testing.T) {
	c := newCast(t)
	me := c.captain()
	c.judge(t, []write{
		{"renew", state{me, "5", ""}, state{me, "5", ""}, c.green, ""},
		{"release to nobody", state{me, "5", "blue"}, state{"", "5", "blue"}, c.green, ""},
		{"release to the slot", state{me, "5", ""}, state{"green", "5", ""}, c.green, ""},
		{"release with another epoch", state{me, "5", "blue"}, state{"", "6", "blue"}, c.green, mustStay},
		{"release to the slot with another epoch", state{me, "5", ""}, state{"green", "6", ""}, c.green, mustStay},
		{"another process of the pod releases", state{strings.Replace(me, "n1", "n2", 1), "5", ""}, state{"green", "5", ""}, c.green, ""},
		{"release what has no captain", state{"green", "5", "blue"}, state{"", "5", "blue"}, c.green, ""},
		{"renew for another", state{blueCaptain, "5", ""}, state{blueCaptain, "5", ""}, c.green, mustBeSelf},
		{"release for another", state{blueCaptain, "5", "green"}, state{"", "5", "green"}, c.green, mustBeOwn},
		{"leave another's to its slot", state{blueCaptain, "5", ""}, state{"blue", "5", ""}, c.green, mustBeOwn},
		{"release with a token of no pod", state{me, "5", ""}, state{"", "5", ""}, c.unbound, "and this token is bound to none"},
		{"release by hand", state{me, "5", ""}, state{"", "5", ""}, admin, ""},
		{"raise it while nobody holds", state{"", "5", ""}, state{"", "6", ""}, c.operator, mustStay},
		{"begin to count", state{"", "", ""}, state{"", "7", ""}, c.operator, ""},
	})
}

// TestAProxyNamesNobodyButItself: not a pod of its slot, not an earlier pod of its
// name, and not itself with a token that proves nothing.
func TestAProxyNamesNobodyButItself(t *testing.T) {
	c := newCast(t)
	me := c.captain()
	old := state{"", "5", ""}
	c.judge(t, []write{
		{"itself", old, state{me, "6", ""}, c.green, ""},
		{"another pod", old, state{"blue/chat-blue-0/" + string(c.greenUID) + "/n0", "6", ""}, c.green, mustBeSelf},
		{"an earlier pod of its name", old, state{"green/chat-green-0/u-old/n0", "6", ""}, c.green, mustBeSelf},
		{"a pod whose token it has not", old, state{me, "6", ""}, c.blue, "which is chat-blue-0"},
		{"with a token of no pod", old, state{me, "6", ""}, c.unbound, mustBeBound},
		{"the operator names a proxy", old, state{me, "6", ""}, c.operator, "which is operator-0"},
		{"somebody else's words", old, state{"chat-green-0_uuid", "6", ""}, c.green, mustBeHolder},
		{"too many parts", old, state{me + "/x", "6", ""}, c.green, mustBeHolder},
		{"an empty part", old, state{"green/chat-green-0//n1", "6", ""}, c.green, mustBeHolder},
		{"somebody else's words, by hand", old, state{"me", "5", ""}, admin, mustBeHolder},
		{"nonsense by hand", old, state{"me/too", "6", ""}, admin, mustBeHolder},
	})
}

// TestTheOperatorAloneWishes for the next holder, and an administrator.
func TestTheOperatorAloneWishes(t *testing.T) {
	c := newCast(t)
	me := c.captain()
	for _, to := range []state{{me, "5", "green"}, {me, "5", ""}} {
		from := state{me, "5", "blue"}
		c.judge(t, []write{
			{"proxy " + to.next, from, to, c.green, mustCommand},
			{"token of no pod " + to.next, state{"green", "5", "blue"}, state{"green", "5", to.next}, c.unbound, mustCommand},
			{"editor " + to.next, from, to, c.editor, mustCommand},
			{"operator " + to.next, from, to, c.operator, ""},
			{"administrator " + to.next, from, to, admin, ""},
		})
	}
}

// TestANewLease may begin at any epoch: the fence of the store remembers more.
func TestANewLease(t *testing.T) {
	c := newCast(t)
	for _, w := range []write{
		{"by the operator", state{}, state{"", "0", "blue"}, c.operator, ""},
		{"by the operator, going on", state{}, state{"", "42", "blue"}, c.operator, ""},
		{"by a proxy", state{}, state{c.captain(), "42", ""}, c.green, ""},
		{"by a proxy for another one", state{}, state{blueCaptain, "42", ""}, c.green, mustBeSelf},
		{"by a proxy without epoch", state{}, state{c.captain(), "", ""}, c.green, "must be above 0"},
		{"by a proxy with a wish", state{}, state{c.captain(), "42", "green"}, c.green, mustCommand},
		{"with an epoch that is none", state{}, state{"", "soon", ""}, admin, "must be an integer and not below 0"},
	} {
		t.Run(w.name, func(t *testing.T) {
			expect(t, w.by.Create(t.Context(), lease(c.ns, effective.ActivationLease("new"), w.new), client.DryRunAll), w.want)
		})
	}
}

// TestWhatIsLeftAloneIsNotJudged: a Lease with nonsense from before the policy can
// be labelled, repaired and deleted, and the garbage collector can let go of one.
func TestWhatIsLeftAloneIsNotJudged(t *testing.T) {
	c := newCast(t)
	l := lease(c.ns, effective.ActivationLease("chat"), state{"who/knows", "nonsense", "x"})
	l.Labels = nil // so that it is nobody's yet
	must(t, admin.Create(t.Context(), l))
	for _, step := range []struct {
		name   string
		by     client.Client
		change func(*coordinationv1.Lease)
	}{
		{"adopt", c.operator, func(l *coordinationv1.Lease) { l.Labels = map[string]string{v1alpha1.LabelPolicy: "chat"} }},
		{"annotate", c.green, func(l *coordinationv1.Lease) { metav1.SetMetaDataAnnotation(&l.ObjectMeta, "a", "b") }},
		{"label", c.editor, func(l *coordinationv1.Lease) { l.Labels["team"] = "a" }},
		{"own", c.operator, func(l *coordinationv1.Lease) {
			l.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "gone", UID: "u"}}
		}},
		{"orphan", c.editor, func(l *coordinationv1.Lease) { l.OwnerReferences = nil }},
		{"renew", c.editor, func(l *coordinationv1.Lease) { l.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()} }},
		{"repair", c.operator, func(l *coordinationv1.Lease) { state{"", "7", "blue"}.put(l) }},
	} {
		step.change(l)
		if err := step.by.Update(t.Context(), l); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
	}
	delete(l.Labels, v1alpha1.LabelPolicy)
	expect(t, c.green.Update(t.Context(), l.DeepCopy(), client.DryRunAll), mustBelong)
	expect(t, c.operator.Update(t.Context(), l.DeepCopy(), client.DryRunAll), "")
	must(t, c.green.Delete(t.Context(), l))
}

// TestOtherLeasesAreNotMatched: neither one of somebody else with such a name, nor
// one of ours with another.
func TestOtherLeasesAreNotMatched(t *testing.T) {
	c := newCast(t)
	for name, labels := range map[string]map[string]string{
		"theirs-activation": {"app": "theirs"}, "bare-activation": nil, "chat-lock": {v1alpha1.LabelPolicy: "chat"},
	} {
		l := lease(c.ns, name, state{"whoever_1234", "5", ""})
		l.Labels = labels
		must(t, c.blue.Create(t.Context(), l))
		state{"somebody/else", "-1", "me"}.put(l)
		if err := c.green.Update(t.Context(), l); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// judge does each write as a dry run on a Lease of its own.
func (c cast) judge(t *testing.T, writes []write) {
	t.Helper()
	for i, w := range writes {
		t.Run(w.name, func(t *testing.T) {
			l := lease(c.ns, effective.ActivationLease(fmt.Sprintf("case-%d", i)), w.old)
			must(t, admin.Create(t.Context(), l))
			w.new.put(l)
			l.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
			expect(t, w.by.Update(t.Context(), l, client.DryRunAll), w.want)
			must(t, admin.Delete(t.Context(), l))
		})
	}
}
