package main

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/clientcmd"
)

// recordTTL is short on purpose: test clusters replace Services often.
const recordTTL = 1

// zone answers A, AAAA and SRV questions about Services and the endpoints of
// headless Services, from informer caches. It is what a test cluster needs of a
// cluster DNS and nothing more; CoreDNS would pull in thirty newer modules.
type zone struct {
	suffix    string // with the leading and the final dot: ".svc.cluster.local."
	services  corelisters.ServiceLister
	endpoints discoverylisters.EndpointSliceLister
}

// answer is what a name resolves to; exists tells an empty answer from NXDOMAIN.
type answer struct {
	addresses []net.IP
	services  []dnsmessage.SRVResource
	exists    bool
}

func (z *zone) lookup(name string) answer {
	rest, found := strings.CutSuffix(strings.ToLower(name), z.suffix)
	if !found {
		return answer{}
	}
	parts := strings.Split(rest, ".")
	if len(parts) < 2 {
		return answer{exists: true} // a namespace is an empty non-terminal
	}
	namespace, service := parts[len(parts)-1], parts[len(parts)-2]
	host := parts[:len(parts)-2]
	svc, err := z.services.Services(namespace).Get(service)
	if err != nil {
		return answer{}
	}
	switch {
	case svc.Spec.Type == corev1.ServiceTypeExternalName:
		return answer{exists: true}
	case len(host) == 2 && strings.HasPrefix(host[0], "_") && strings.HasPrefix(host[1], "_"):
		return z.ports(svc, host[0], host[1])
	case svc.Spec.ClusterIP != corev1.ClusterIPNone && len(host) == 0:
		return answer{addresses: []net.IP{net.ParseIP(svc.Spec.ClusterIP)}, exists: true}
	}
	return z.headless(svc, host)
}

func (z *zone) ports(svc *corev1.Service, port, protocol string) answer {
	var a answer
	target, err := dnsmessage.NewName(svc.Name + "." + svc.Namespace + z.suffix)
	if err != nil {
		return a
	}
	for _, p := range svc.Spec.Ports {
		if "_"+p.Name == port && "_"+strings.ToLower(string(p.Protocol)) == protocol {
			a.services = append(a.services, dnsmessage.SRVResource{Weight: 100, Port: uint16(p.Port), Target: target})
			a.exists = true
		}
	}
	return a
}

func (z *zone) headless(svc *corev1.Service, host []string) answer {
	slices, _ := z.endpoints.EndpointSlices(svc.Namespace).List(labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: svc.Name}))
	var a answer
	for _, slice := range slices {
		for _, e := range slice.Endpoints {
			if e.Conditions.Ready != nil && !*e.Conditions.Ready && !svc.Spec.PublishNotReadyAddresses {
				continue
			}
			if len(host) == 1 && (e.Hostname == nil || *e.Hostname != host[0]) {
				continue
			}
			for _, address := range e.Addresses {
				a.addresses = append(a.addresses, net.ParseIP(address))
			}
		}
	}
	a.exists = len(host) == 0 || len(a.addresses) > 0
	return a
}

// reply answers one packet; nil means the packet was no question.
func (z *zone) reply(packet []byte) []byte {
	var parser dnsmessage.Parser
	header, err := parser.Start(packet)
	if err != nil {
		return nil
	}
	question, err := parser.Question()
	if err != nil {
		return nil
	}
	found := z.lookup(question.Name.String())
	response := dnsmessage.Header{ID: header.ID, Response: true, Authoritative: true,
		RecursionDesired: header.RecursionDesired, RecursionAvailable: true}
	if !found.exists {
		response.RCode = dnsmessage.RCodeNameError
	}
	b := dnsmessage.NewBuilder(nil, response)
	b.EnableCompression()
	_ = b.StartQuestions()
	_ = b.Question(question)
	_ = b.StartAnswers()
	rh := dnsmessage.ResourceHeader{Name: question.Name, Class: question.Class, TTL: recordTTL}
	for _, ip := range found.addresses {
		if v4 := ip.To4(); v4 != nil && question.Type == dnsmessage.TypeA {
			_ = b.AResource(rh, dnsmessage.AResource{A: [4]byte(v4)})
		} else if v4 == nil && ip != nil && question.Type == dnsmessage.TypeAAAA {
			_ = b.AAAAResource(rh, dnsmessage.AAAAResource{AAAA: [16]byte(ip)})
		}
	}
	if question.Type == dnsmessage.TypeSRV {
		for _, srv := range found.services {
			_ = b.SRVResource(rh, srv)
		}
	}
	out, err := b.Finish()
	if err != nil {
		return nil
	}
	return out
}

func serveDNS(args []string) error {
	fs := flag.NewFlagSet("dns", flag.ContinueOnError)
	kubeconfig := fs.String("kubeconfig", "", "kubeconfig of the cluster")
	listen := fs.String("listen", "127.0.0.1:53", "UDP and TCP address")
	domain := fs.String("domain", "cluster.local", "cluster domain")
	if err := fs.Parse(args); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	z := &zone{suffix: ".svc." + *domain + ".",
		services: factory.Core().V1().Services().Lister(), endpoints: factory.Discovery().V1().EndpointSlices().Lister()}
	factory.Core().V1().Services().Informer()
	factory.Discovery().V1().EndpointSlices().Informer()
	stop := context.Background().Done()
	factory.Start(stop)
	factory.WaitForCacheSync(stop)

	tcp, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	udp, err := net.ListenPacket("udp", *listen)
	if err != nil {
		return err
	}
	go z.serveTCP(tcp)
	fmt.Fprintln(os.Stderr, "dns: serving", *domain, "on", *listen)
	return z.serveUDP(udp)
}

func (z *zone) serveUDP(conn net.PacketConn) error {
	packet := make([]byte, 4096)
	for {
		n, from, err := conn.ReadFrom(packet)
		if err != nil {
			return err
		}
		if r := z.reply(packet[:n]); r != nil {
			_, _ = conn.WriteTo(r, from)
		}
	}
}

func (z *zone) serveTCP(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go z.serveConn(conn)
	}
}

func (z *zone) serveConn(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	for {
		var size [2]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return
		}
		packet := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(conn, packet); err != nil {
			return
		}
		r := z.reply(packet)
		if r == nil {
			return
		}
		if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(r))), r...)); err != nil {
			return
		}
	}
}
