package integration

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causeway-dev/causeway/api/effective"
	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/controllers/devicelogin"
)

// kubeconfig writes a file that leads to the API server with every right.
func (c *cluster) kubeconfig() string {
	c.t.Helper()
	file := clientcmdapi.NewConfig()
	file.Clusters["test"] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	file.AuthInfos["test"] = &clientcmdapi.AuthInfo{ClientCertificateData: config.CertData, ClientKeyData: config.KeyData}
	file.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test", Namespace: c.namespace}
	file.CurrentContext = "test"
	path := filepath.Join(c.t.TempDir(), "kubeconfig")
	c.must(clientcmd.WriteToFile(*file, path))
	return path
}

// TestAPersonLogsAnAccountIn: from a pool whose Secret does not exist to a token at
// the proxies, and again after the login was lost.
func TestAPersonLogsAnAccountIn(t *testing.T) {
	l := newLogins(t, 1)
	l.must(l.client.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: l.namespace, Name: loginSeeds}}))
	l.bridge()
	l.start()
	l.condition(&v1alpha1.AccountPool{}, loginPool, v1alpha1.ConditionSecretsResolved, metav1.ConditionFalse, v1alpha1.ReasonSecretNotFound)

	var out strings.Builder
	args := []string{"--pool", loginPool, "--account", "a00", "--kubeconfig", l.kubeconfig()}
	l.must(devicelogin.Command(t.Context(), args, &out))
	first := l.serves("a00", 1)
	l.condition(&v1alpha1.AccountPool{}, loginPool, v1alpha1.ConditionSecretsResolved, metav1.ConditionTrue, v1alpha1.ReasonResolved)
	if first.ChatGPTAccountID != "acct-a00" || strings.Contains(out.String(), first.AccessToken) {
		t.Errorf("account %q, or a token is printed", first.ChatGPTAccountID)
	}

	l.spend("a00")
	l.age(10 * 24 * time.Hour)
	l.poolSays(v1alpha1.ReasonReauthRequired, "a00")
	l.serves("a00", 0)
	l.must(devicelogin.Command(t.Context(), append(args, "-n", l.namespace), &out))
	l.passing("the new login", func(ctx context.Context) error {
		r, shown, err := l.record(ctx, "a00")
		if err == nil && (r.RefreshToken != l.issuer.RefreshToken("a00") || shown.State != effective.LoginRefreshing) {
			err = fmt.Errorf("state %s", shown.State)
		}
		return err
	})
	l.poolSays(v1alpha1.ReasonRefreshing, "")
	l.passing("its token at the proxies", func(ctx context.Context) error {
		document, err := l.credentials(ctx)
		if err == nil && document.Accounts["a00"].AccessToken == "" {
			err = errors.New("there is none")
		}
		return err
	})
}
