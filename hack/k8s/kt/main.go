// Command kt is a whole Kubernetes in one binary: etcd, the control plane, the
// node agents, kubectl and a small cluster DNS.
//
// One binary instead of seven shares one link step, one copy of the code on
// disk and its text pages in memory. The program is chosen by the base name it
// was started under (a link kube-apiserver -> kt, as envtest wants it), or by
// the first argument.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	_ "time/tzdata"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	_ "k8s.io/client-go/plugin/pkg/client/auth"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	kubeproxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// programs maps a name to what runs under it. Each function ends the process.
var programs = map[string]func(args []string){
	"etcd":                    func(args []string) { etcdmain.Main(args) },
	"dns":                     runDNS,
	"kubectl":                 runKubectl,
	"kube-apiserver":          runAPIServer,
	"kube-controller-manager": component(controllermanager.NewControllerManagerCommand),
	"kube-scheduler":          component(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
	"kubelet":                 component(func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) }),
	"kube-proxy":              component(kubeproxy.NewProxyCommand),
}

func main() {
	name := filepath.Base(os.Args[0])
	if _, known := programs[name]; !known && len(os.Args) > 1 {
		os.Args = os.Args[1:]
		name = filepath.Base(os.Args[0])
	}
	run, known := programs[name]
	if !known {
		names := make([]string, 0, len(programs))
		for n := range programs {
			names = append(names, n)
		}
		sort.Strings(names)
		fmt.Fprintf(os.Stderr, "usage: kt %s [flags]\n", strings.Join(names, "|"))
		os.Exit(2)
	}
	run(os.Args)
}

func component(command func() *cobra.Command) func([]string) {
	return func([]string) { os.Exit(cli.Run(command())) }
}

// unroutable is an address for documentation (RFC 5737); nobody is sent to it.
const unroutable = "192.0.2.1"

// runAPIServer lets tests run on a machine without a network: the API server looks
// for the address of the default route, to publish it as its own, and ends if there
// is none. Tests talk to it on loopback and never use what it publishes.
func runAPIServer(args []string) {
	given := slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "--advertise-address") })
	if _, err := utilnet.ChooseHostInterface(); err != nil && !given {
		os.Args = append(os.Args, "--advertise-address="+unroutable)
	}
	component(apiserver.NewAPIServerCommand)(args)
}

func runKubectl(args []string) {
	_, _ = logs.GlogSetter(kubectl.GetLogVerbosity(args))
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err)
	}
}

func runDNS(args []string) {
	if err := serveDNS(args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "dns:", err)
		os.Exit(1)
	}
}
