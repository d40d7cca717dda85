package effective

import (
	"crypto/x509"
	"encoding/pem"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/api/v1alpha1"
)

// Pool applies defaults to an AccountPool and judges it. The bundle is of use
// only if there is no error.
func Pool(p *v1alpha1.AccountPool) (bundle.Pool, field.ErrorList) {
	j := &judge{}
	j.metadata(p.Name)
	j.pool(&p.Spec, field.NewPath("spec"))

	out := bundle.Pool{
		Name:          p.Name,
		Provider:      provider(&p.Spec.Provider),
		Strategy:      string(defaultStrategy),
		CapacityScope: string(defaultCapacityScope),

		ResetCooldowns: ResetCooldowns(p),
	}
	if s := p.Spec.Strategy; s != nil {
		choose(&out.Strategy, s.Type)
		if s.SingleAccount != nil {
			out.SingleAccount = s.SingleAccount.AccountName
		}
	}
	choose(&out.CapacityScope, p.Spec.CapacityScope)
	for i := range p.Spec.Accounts {
		out.Accounts = append(out.Accounts, account(&p.Spec.Accounts[i]))
	}
	for i := range p.Spec.Quotas {
		out.Quotas = append(out.Quotas, quota(&p.Spec.Quotas[i]))
	}
	return out, j.errs
}

func provider(p *v1alpha1.Provider) bundle.Provider {
	out := bundle.Provider{Type: string(p.Type), CABundle: p.CABundle}
	switch {
	case p.Endpoint != "":
		out.Endpoint = strings.TrimRight(p.Endpoint, "/")
	case p.Type == v1alpha1.ProviderOpenAIPlatform:
		out.Endpoint = EndpointOpenAIPlatform
	case p.Type == v1alpha1.ProviderChatGPT:
		out.Endpoint = EndpointChatGPT
	}
	return out
}

func account(a *v1alpha1.Account) bundle.Account {
	out := bundle.Account{
		Name:     a.Name,
		Kind:     bundle.KindAPIKey,
		State:    string(defaultAccountState),
		Weight:   defaultWeight,
		Priority: defaultPriority,
		Models:   append([]string(nil), a.Models...),
	}
	if a.OAuth != nil {
		out.Kind = bundle.KindOAuth
	}
	choose(&out.State, a.State)
	set(&out.Weight, a.Weight)
	set(&out.Priority, a.Priority)
	if l := a.Limits; l != nil {
		set(&out.MaxConcurrent, l.MaxConcurrent)
		set(&out.RequestsPerMinute, l.RequestsPerMinute)
		set(&out.TokensPerMinute, l.TokensPerMinute)
	}
	return out
}

func quota(q *v1alpha1.Quota) bundle.Quota {
	out := bundle.Quota{
		Name:             q.Name,
		Unit:             string(q.Unit),
		Window:           string(q.Window),
		Limit:            q.Limit,
		SoftLimitPercent: defaultSoftLimitPercent,
	}
	set(&out.SoftLimitPercent, q.SoftLimitPercent)
	return out
}

func (j *judge) pool(s *v1alpha1.AccountPoolSpec, at *field.Path) {
	j.provider(&s.Provider, at.Child("provider"))

	accounts := at.Child("accounts")
	if len(s.Accounts) == 0 {
		j.errs = append(j.errs, field.Required(accounts, "a pool needs at least one account"))
	}
	j.items(accounts, len(s.Accounts), 64)
	names := make([]string, 0, len(s.Accounts))
	for i := range s.Accounts {
		names = append(names, s.Accounts[i].Name)
		j.account(&s.Accounts[i], accounts.Index(i))
	}
	distinct(j, accounts, names)

	if s.Strategy != nil {
		j.strategy(s.Strategy, names, at)
	}
	oneOf(j, at.Child("capacityScope"), s.CapacityScope,
		v1alpha1.CapacityPartitioned, v1alpha1.CapacityPerReplica, v1alpha1.CapacityShared)
	j.quotas(s.Quotas, at.Child("quotas"))
}

func (j *judge) provider(p *v1alpha1.Provider, at *field.Path) {
	if j.required(at.Child("type"), string(p.Type)) {
		oneOf(j, at.Child("type"), p.Type,
			v1alpha1.ProviderOpenAIPlatform, v1alpha1.ProviderChatGPT, v1alpha1.ProviderGeneric)
	}
	j.rule(p.Type != v1alpha1.ProviderGeneric || p.Endpoint != "", at,
		"endpoint is required with type Generic: set it to the base URL that has /responses below it")
	if p.Endpoint != "" {
		endpoint := at.Child("endpoint")
		j.length(endpoint, p.Endpoint, 253)
		j.rule(isHTTPS(p.Endpoint), endpoint, "endpoint must be an https URL: write https://HOST/PATH")
		j.rule(!strings.Contains(p.Endpoint, "@"), endpoint,
			"endpoint must not contain credentials: put them into a Secret and refer to it in accounts")
		j.rule(!strings.ContainsAny(p.Endpoint, "?#"), endpoint,
			"endpoint must not have a query or fragment: end it with the path")
	}
	if p.CABundle != "" {
		j.certificates(p.CABundle, at.Child("caBundle"))
	}
}

// certificates goes further than CEL can: each block has to parse, because a
// proxy that trusts nothing fails only at its first turn.
func (j *judge) certificates(text string, at *field.Path) {
	j.length(at, text, 32768)
	framed := strings.Contains(text, "-----BEGIN CERTIFICATE-----") && strings.Contains(text, "-----END CERTIFICATE-----")
	j.rule(framed, at, "caBundle must be PEM: paste the text from BEGIN CERTIFICATE to END CERTIFICATE")
	private := strings.Contains(text, "PRIVATE KEY")
	j.rule(!private, at, "caBundle must not contain a private key: keep only the CERTIFICATE blocks")
	if !framed || private {
		return
	}
	found := 0
	for rest := []byte(text); ; found++ {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if _, err := x509.ParseCertificate(block.Bytes); block.Type != "CERTIFICATE" || err != nil {
			j.rule(false, at, "caBundle must hold certificates only: a block is damaged or of another type")
			return
		}
	}
	j.rule(found > 0, at, "caBundle must hold certificates only: a block is damaged or of another type")
}

func (j *judge) account(a *v1alpha1.Account, at *field.Path) {
	if j.required(at.Child("name"), a.Name) {
		j.label(at.Child("name"), a.Name)
	}
	oneOf(j, at.Child("state"), a.State,
		v1alpha1.AccountEnabled, v1alpha1.AccountDisabled, v1alpha1.AccountDraining)
	number(j, at.Child("weight"), a.Weight, 0, 1000)
	number(j, at.Child("priority"), a.Priority, 0, 9)
	j.rule((a.APIKey != nil) != (a.OAuth != nil), at,
		"exactly one of apiKey and oauth must be set: remove one or add the missing one")
	if a.APIKey != nil {
		j.keyReference(at.Child("apiKey", "secretRef"), a.APIKey.SecretRef)
	}
	if a.OAuth != nil {
		j.oauth(a.OAuth, at.Child("oauth"))
	}
	if l := a.Limits; l != nil {
		limits := at.Child("limits")
		number(j, limits.Child("maxConcurrent"), l.MaxConcurrent, 1, 10000)
		number(j, limits.Child("requestsPerMinute"), l.RequestsPerMinute, 1, 1000000)
		number(j, limits.Child("tokensPerMinute"), l.TokensPerMinute, 1, 2000000000)
	}
	models := at.Child("models")
	j.items(models, len(a.Models), 64)
	for i, m := range a.Models {
		if j.required(models.Index(i), m) {
			j.length(models.Index(i), m, 80)
		}
	}
}

func (j *judge) label(at *field.Path, name string) {
	j.length(at, name, 40)
	j.rule(labelName.MatchString(name), at, "name must be a DNS label: lower-case letters, digits and '-', at most 40")
}

func (j *judge) oauth(o *v1alpha1.OAuth, at *field.Path) {
	j.keyReference(at.Child("seedSecretRef"), o.SeedSecretRef)
	j.length(at.Child("clientID"), o.ClientID, 128)
	if o.TokenURL != "" {
		tokenURL := at.Child("tokenURL")
		j.length(tokenURL, o.TokenURL, 253)
		j.rule(isHTTPS(o.TokenURL), tokenURL, "tokenURL must be an https URL: write https://HOST/PATH")
		j.rule(!strings.Contains(o.TokenURL, "@"), tokenURL,
			"tokenURL must not contain credentials: the client is named by clientID")
	}
}

func (j *judge) strategy(s *v1alpha1.Strategy, accounts []string, spec *field.Path) {
	at := spec.Child("strategy")
	if j.required(at.Child("type"), string(s.Type)) {
		oneOf(j, at.Child("type"), s.Type,
			v1alpha1.StrategyCapacityWeighted, v1alpha1.StrategyRoundRobin, v1alpha1.StrategyLeastLoaded,
			v1alpha1.StrategyFillFirst, v1alpha1.StrategySequentialDrain, v1alpha1.StrategyResetDrain,
			v1alpha1.StrategySingleAccount)
	}
	j.rule((s.Type == v1alpha1.StrategySingleAccount) == (s.SingleAccount != nil), at,
		"singleAccount must be set with type SingleAccount and with no other: add or remove it")
	if s.SingleAccount == nil {
		return
	}
	name := s.SingleAccount.AccountName
	if j.required(at.Child("singleAccount", "accountName"), name) {
		j.length(at.Child("singleAccount", "accountName"), name, 40)
	}
	for _, a := range accounts {
		if a == name {
			return
		}
	}
	j.rule(false, spec, "strategy.singleAccount.accountName must be the name of an account of this pool")
}

func (j *judge) quotas(quotas []v1alpha1.Quota, at *field.Path) {
	j.items(at, len(quotas), 8)
	names := make([]string, 0, len(quotas))
	for i := range quotas {
		q, here := &quotas[i], at.Index(i)
		names = append(names, q.Name)
		if j.required(here.Child("name"), q.Name) {
			j.label(here.Child("name"), q.Name)
		}
		if j.required(here.Child("unit"), string(q.Unit)) {
			oneOf(j, here.Child("unit"), q.Unit, v1alpha1.QuotaRequests, v1alpha1.QuotaTokens)
		}
		if j.required(here.Child("window"), string(q.Window)) {
			oneOf(j, here.Child("window"), q.Window, v1alpha1.QuotaMinute, v1alpha1.QuotaHour,
				v1alpha1.QuotaDay, v1alpha1.QuotaWeek, v1alpha1.QuotaMonth)
		}
		if q.Limit < 1 {
			j.errs = append(j.errs, field.Invalid(here.Child("limit"), q.Limit, "must be at least 1"))
		}
		number(j, here.Child("softLimitPercent"), q.SoftLimitPercent, 1, 100)
	}
	distinct(j, at, names)
}
