package effective

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/causeway-dev/causeway/api/effective"
	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
)

// Hash identifies any plain value, such as a spec with defaults applied.
func Hash(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		return "" // plain types always marshal
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])[:16]
}

// PolicyHash identifies a BridgePolicy with defaults applied.
func PolicyHash(p *v1alpha1.BridgePolicy, f Fleet) string {
	return Hash(struct {
		Settings effective.Settings
		Fleet    Fleet
		Spec     v1alpha1.BridgePolicySpec
	}{effective.SettingsOf(p), f, p.Spec})
}
