package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/causeway-dev/causeway/api/bundle"
	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
)

func TestB42_AResetOfCooldownsReachesTheProxiesWithoutANewPod(t *testing.T) {
	c := newCluster(t)
	c.operate()
	c.serve()
	c.settle()
	var before, after appsv1.Deployment
	c.get(&before, samplePolicy+"-blue")
	annotate := func(value string) {
		c.edit(&v1alpha1.AccountPool{}, samplePool, func(o client.Object) {
			o.SetAnnotations(map[string]string{v1alpha1.AnnotationResetCooldowns: value})
		})
	}
	told := func(account, token string) {
		t.Helper()
		c.eventually("the reset in the configuration of the proxies", func(ctx context.Context) error {
			var cm corev1.ConfigMap
			if err := c.client.Get(ctx, c.key(samplePolicy+"-config"), &cm); err != nil {
				return err
			}
			b, err := bundle.Decode([]byte(cm.Data[bundle.FileName]))
			if err != nil {
				return err
			}
			if a, tok := b.Pool.CooldownReset(); a != account || tok != token {
				return fmt.Errorf("it is %q of %q, want %q of %q", tok, a, token, account)
			}
			return nil
		})
	}
	annotate("2026-03-01T12:00:00+01:00")
	told("", "2026-03-01T12:00:00+01:00")
	c.eventually("the mark on the pods", c.marked)
	c.report(samplePolicy)
	c.settle()
	annotate("backup=1772366400")
	told("backup", "1772366400")

	for value, word := range map[string]string{"now, please": "TEXT for all accounts", "bakcup=1": "account bakcup"} {
		annotate(value)
		told("", "")
		got := c.condition(&v1alpha1.AccountPool{}, samplePool, v1alpha1.ConditionWarning, metav1.ConditionTrue, v1alpha1.ReasonInvalidAnnotation)
		c.eventually("a warning that says what is wrong", func(ctx context.Context) error {
			got = c.condition(&v1alpha1.AccountPool{}, samplePool, v1alpha1.ConditionWarning, metav1.ConditionTrue, v1alpha1.ReasonInvalidAnnotation)
			if !contains(got.Message, v1alpha1.AnnotationResetCooldowns, "set it to", word) {
				return fmt.Errorf("it says %q", got.Message)
			}
			return nil
		})
		c.condition(&v1alpha1.AccountPool{}, samplePool, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	}
	annotate("")
	c.eventually("the warning to go", func(ctx context.Context) error {
		var pool v1alpha1.AccountPool
		if err := c.client.Get(ctx, c.key(samplePool), &pool); err != nil {
			return err
		}
		for _, cond := range pool.Status.Conditions {
			if cond.Type == v1alpha1.ConditionWarning {
				return fmt.Errorf("it says %q", cond.Message)
			}
		}
		return nil
	})
	c.get(&after, samplePolicy+"-blue")
	if diff := cmp.Diff(before.Spec, after.Spec); diff != "" {
		t.Errorf("the Deployment changed (-before +after):\n%s", diff)
	}
}

func contains(text string, words ...string) bool {
	for _, word := range words {
		if !strings.Contains(text, word) {
			return false
		}
	}
	return true
}
