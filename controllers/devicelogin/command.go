// Package devicelogin is the command with which a person logs an OAuth account of a
// pool in: it gets a login from the issuer with a code that is typed into a
// browser, and writes it into the Secret that the pool names. What becomes of it
// there is the credential controller's.
package devicelogin

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/causeway-dev/causeway/api/effective"
	"github.com/causeway-dev/causeway/api/version"
	"github.com/causeway-dev/causeway/controllers"
	"github.com/causeway-dev/causeway/controllers/credential"
)

// options are the flags.
type options struct {
	pool, account, namespace, kubeconfig string
	force                                bool
}

func parse(args []string, out io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("causeway-operator login", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.StringVar(&o.pool, "pool", "", "AccountPool (required)")
	flags.StringVar(&o.account, "account", "", "account of the pool, one with oauth (required)")
	flags.StringVar(&o.namespace, "n", "", "namespace of the pool; empty means that of the kubeconfig")
	flags.StringVar(&o.namespace, "namespace", "", "the same as -n")
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig file; empty means $KUBECONFIG, ~/.kube/config or the pod's own account")
	flags.BoolVar(&o.force, "force", false, "overwrite what the Secret has under the account's key even if it is no login")
	if err := flags.Parse(args); err != nil {
		return o, err //nolint:wrapcheck // flag has told already
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q: everything is given by flags, see -h", flags.Arg(0))
	case o.pool == "":
		return o, errors.New("--pool is missing: name the AccountPool")
	case o.account == "":
		return o, errors.New("--account is missing: name the account of the pool")
	}
	return o, nil
}

// Command runs the command with the arguments behind its name and tells on out
// what to do. Its errors hold no credential. It returns flag.ErrHelp after -h.
func Command(ctx context.Context, args []string, out io.Writer) error {
	o, err := parse(args, out)
	if err != nil {
		return err
	}
	config, err := o.cluster()
	if err != nil {
		return err
	}
	scheme, err := controllers.NewScheme()
	if err != nil {
		return fmt.Errorf("registering types: %w", err)
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("making a client for the cluster: %w", err)
	}
	return run(ctx, c, o, out, pause)
}

// cluster finds the API server, and the namespace if none was given.
func (o *options) cluster() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{})
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("finding the cluster: %w", err)
	}
	if o.namespace == "" {
		if o.namespace, _, err = loader.Namespace(); err != nil {
			return nil, fmt.Errorf("finding the namespace: %w", err)
		}
	}
	config.UserAgent = "causeway-operator-login/" + version.Version
	return config, nil
}

// run logs one account in; wait comes between two polls.
func run(ctx context.Context, c client.Client, o options, out io.Writer, wait waiting) error {
	t, err := find(ctx, c, o)
	if err != nil {
		return err
	}
	if err := t.check(ctx, o.force); err != nil {
		return err // before anybody has logged in for nothing
	}
	issuer, ok := effective.IssuerOf(t.pool, t.account)
	if !ok {
		return fmt.Errorf("account %s needs oauth.tokenURL and oauth.clientID: provider type %s has no issuer of its own",
			o.account, t.pool.Spec.Provider.Type)
	}
	web, err := credential.NewClient(issuer.CABundle)
	if err != nil {
		return fmt.Errorf("preparing to ask the issuer: %w", err)
	}
	d, err := newDevice(web, issuer, wait)
	if err != nil {
		return err
	}
	code, err := d.begin(ctx)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "Log in account %s of AccountPool %s:\n\n  1. Open %s in a browser and sign in.\n  2. Type in the code %s\n\n"+
		"Never give this code to anybody who asks for it. Waiting, for 15 minutes at most ...\n", o.account, o.pool, d.page(), code.userCode)
	granted, err := d.wait(ctx, code)
	if err != nil {
		return err
	}
	// The code has been used: what follows is finished even if the person loses patience.
	ctx = context.WithoutCancel(ctx)
	got, err := d.exchange(ctx, granted)
	if err != nil {
		return err
	}
	if err := t.store(ctx, got, o.force); err != nil {
		return fmt.Errorf("the login is done and cannot be stored, so it is lost; solve this and run the command again: %w", err)
	}
	_, _ = fmt.Fprintf(out, "Logged in. Key %s of Secret %s holds the login; the operator takes it over within seconds and keeps it alive.\n"+
		"Use it nowhere else: two that refresh one login lose it. See how it is:\n\n"+
		"  kubectl -n %s describe accountpool %s\n", t.ref.Key, t.ref.Name, t.pool.Namespace, t.pool.Name)
	return nil
}
