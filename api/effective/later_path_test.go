package effective

import (
	"slices"
	"testing"

	"github.com/causeway-dev/causeway/api/v1alpha1"
)

func TestWhatIsListedIsFoundByItsPath(t *testing.T) {
	table := later
	t.Cleanup(func() { later = table })
	later = map[string][]laterField{v1alpha1.KindAccountPool: {
		{path: "spec.strategy"},
		{path: "spec.accounts[*].weight", unless: []string{"100"}},
		{path: "spec.accounts[name=b].priority"},
		{path: "spec.provider.baseURL"},
	}}
	hundred, one := int32(100), int32(1)
	pool := &v1alpha1.AccountPool{Spec: v1alpha1.AccountPoolSpec{
		Strategy: &v1alpha1.Strategy{}, Accounts: []v1alpha1.Account{{Name: "a", Weight: &hundred, Priority: &one}, {Name: "b", Weight: &hundred}},
	}}
	if got := NotYetEffective(pool); !slices.Equal(got, []string{"spec.strategy"}) {
		t.Errorf("got %v", got)
	}
	pool.Spec.Accounts[1].Weight, pool.Spec.Accounts[1].Priority = &one, &one
	want := []string{"spec.strategy", "spec.accounts[*].weight", "spec.accounts[name=b].priority"}
	if got := NotYetEffective(pool); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
