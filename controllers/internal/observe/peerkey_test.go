package observe

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/causeway-dev/causeway/api/bundle"
)

func TestFreshKeysStayUntilTheyAreStored(t *testing.T) {
	var f freshKeys
	one, two := types.NamespacedName{Namespace: "a", Name: "chat"}, types.NamespacedName{Namespace: "b", Name: "chat"}
	first := f.of(one)
	if _, err := (bundle.Credentials{PeerKeys: []string{first}}).DecodePeerKeys(); err != nil {
		t.Fatal(err)
	}
	if f.of(one) != first {
		t.Error("another key for the same policy")
	}
	if f.of(two) == first {
		t.Error("two policies have one key")
	}
	f.drop(one)
	if f.of(one) == first {
		t.Error("a key that was stored is offered again")
	}
	f.drop(one)
	f.drop(two)
	if len(f.keys) != 0 {
		t.Error("keys are left")
	}
}
