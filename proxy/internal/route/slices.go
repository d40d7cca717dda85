package route

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"

	discoveryv1 "k8s.io/api/discovery/v1"
)

const kindPod = "Pod"

// membersOf lists the ready pods of the slices of one Service, sorted. A pod
// may be in several slices: in one for each family of addresses, and for a
// moment in two of the same family when endpoints are moved between them.
func membersOf(list []*discoveryv1.EndpointSlice, port int) []Member {
	byPod := map[string]discoveryv1.AddressType{}
	addresses := map[string]string{}
	for _, slice := range list {
		if slice.AddressType == discoveryv1.AddressTypeFQDN {
			continue
		}
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			if !serves(e) {
				continue
			}
			pod, address := e.TargetRef.Name, net.JoinHostPort(e.Addresses[0], strconv.Itoa(port))
			// IPv4 before IPv6, and the smaller of two: all replicas choose the same.
			family, seen := byPod[pod]
			if !seen || cmp.Or(cmp.Compare(slice.AddressType, family), cmp.Compare(address, addresses[pod])) < 0 {
				byPod[pod], addresses[pod] = slice.AddressType, address
			}
		}
	}
	members := make([]Member, 0, len(addresses))
	for pod, address := range addresses {
		members = append(members, Member{Pod: pod, Address: address})
	}
	slices.SortFunc(members, func(a, b Member) int { return cmp.Compare(a.Pod, b.Pod) })
	return members
}

// serves says whether an endpoint is a pod that takes new turns. Absent
// conditions mean ready and not terminating.
func serves(e *discoveryv1.Endpoint) bool {
	ready := e.Conditions.Ready == nil || *e.Conditions.Ready
	terminating := e.Conditions.Terminating != nil && *e.Conditions.Terminating
	return ready && !terminating && e.TargetRef != nil && e.TargetRef.Kind == kindPod && len(e.Addresses) > 0
}

// mirror is what a reflector fills: the slices as the API server last told
// them. Only the reflector's goroutine uses it.
type mirror struct {
	byName map[string]*discoveryv1.EndpointSlice
	port   int
	last   []Member
	told   bool
	// changed is told the members when they differ from those before.
	changed func([]Member)
}

func (m *mirror) put(obj any) error {
	slice, err := sliceOf(obj)
	if err != nil {
		return err
	}
	m.byName[slice.Name] = slice
	m.tell()
	return nil
}

// Add implements cache.ReflectorStore.
func (m *mirror) Add(obj any) error { return m.put(obj) }

// Update implements cache.ReflectorStore.
func (m *mirror) Update(obj any) error { return m.put(obj) }

// Delete implements cache.ReflectorStore.
func (m *mirror) Delete(obj any) error {
	slice, err := sliceOf(obj)
	if err != nil {
		return err
	}
	delete(m.byName, slice.Name)
	m.tell()
	return nil
}

// Replace implements cache.ReflectorStore.
func (m *mirror) Replace(list []any, _ string) error {
	clear(m.byName)
	for _, obj := range list {
		slice, err := sliceOf(obj)
		if err != nil {
			return err
		}
		m.byName[slice.Name] = slice
	}
	m.tell()
	return nil
}

// Resync implements cache.ReflectorStore.
func (m *mirror) Resync() error { return nil }

func (m *mirror) tell() {
	list := make([]*discoveryv1.EndpointSlice, 0, len(m.byName))
	for _, slice := range m.byName {
		list = append(list, slice)
	}
	members := membersOf(list, m.port)
	if m.told && slices.Equal(members, m.last) {
		return
	}
	m.last, m.told = members, true
	m.changed(members)
}

var errNoSlice = errors.New("not an EndpointSlice")

func sliceOf(obj any) (*discoveryv1.EndpointSlice, error) {
	slice, ok := obj.(*discoveryv1.EndpointSlice)
	if !ok {
		return nil, fmt.Errorf("%w: %T", errNoSlice, obj)
	}
	return slice, nil
}
