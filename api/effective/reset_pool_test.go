package effective_test

import (
	"strings"
	"testing"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/api/effective"
	"github.com/causeway-dev/causeway/api/v1alpha1"
)

func TestB42_TheResetOfCooldownsIsAnAnnotation(t *testing.T) {
	longest := strings.Repeat("a", v1alpha1.MaxResetToken)
	const form, name = "TEXT for all", "does not have"
	for what, tc := range map[string]struct {
		value          string
		warning        string // empty = the value is good
		account, token string
	}{
		"a time":                {"2026-03-01T12:00:00+01:00", "", "", "2026-03-01T12:00:00+01:00"},
		"one account":           {"backup=1772366400", "", "backup", "1772366400"},
		"the longest":           {"backup=" + longest, "", "backup", longest},
		"too long":              {longest + "a", form, "", ""},
		"too long for one":      {"backup=" + longest + "a", form, "", ""},
		"an account it has not": {"bakcup=1", name, "", ""},
		"no account":            {"=1", form, "", ""},
		"no text":               {"backup=", form, "", ""},
		"two equals signs":      {"backup=1=2", form, "", ""},
		"two accounts":          {"primary,backup=1", form, "", ""},
		"a final line break":    {"1\n", form, "", ""},
		"a blank":               {"now please", form, "", ""},
		"another alphabet":      {"сейчас", form, "", ""},
	} {
		t.Run(what, func(t *testing.T) {
			key := map[string]any{"secretRef": map[string]any{"name": "keys", "key": "k"}}
			p := decode[v1alpha1.AccountPool](t, map[string]any{
				"metadata": map[string]any{"name": "team", "annotations": map[string]any{v1alpha1.AnnotationResetCooldowns: tc.value}},
				"spec": map[string]any{"provider": map[string]any{"type": "OpenAIPlatform"}, "accounts": []any{
					map[string]any{"name": "primary", "apiKey": key}, map[string]any{"name": "backup", "apiKey": key}}},
			})
			made, errs := effective.Pool(p)
			if len(errs) > 0 {
				t.Errorf("an annotation made the pool unacceptable: %v", errs)
			}
			if account, token := made.CooldownReset(); account != tc.account || token != tc.token {
				t.Errorf("proxies are told account %q, token %q, want %q, %q", account, token, tc.account, tc.token)
			}
			warnings := effective.PoolWarnings(p)
			if tc.warning == "" {
				if len(warnings) > 0 {
					t.Errorf("warned of a good value: %v", warnings)
				}
				return
			}
			if len(warnings) != 1 || warnings[0].Reason != v1alpha1.ReasonInvalidAnnotation {
				t.Fatalf("warnings %v, want one", warnings)
			}
			m := warnings[0].Message
			if !strings.Contains(m, v1alpha1.AnnotationResetCooldowns) || !strings.Contains(m, "set it to") || !strings.Contains(m, tc.warning) ||
				strings.Contains(m, tc.value) || len(m) > 512 {
				t.Errorf("the warning must name the annotation and the way out, not the value: %s", m)
			}
		})
	}
}

func TestWithoutAResetOfCooldownsNothingChanges(t *testing.T) {
	p := &v1alpha1.AccountPool{}
	p.Annotations = map[string]string{v1alpha1.AnnotationResetCooldowns: ""}
	if w := effective.PoolWarnings(p); len(w) > 0 || effective.ResetCooldowns(p) != "" {
		t.Error("an empty value is as good as none:", w)
	}
	raw, err := bundle.Bundle{}.Encode()
	if err != nil || strings.Contains(string(raw), "resetCooldowns") {
		t.Errorf("%s %v", raw, err)
	}
}
