// Package kube makes the small clients by which a proxy speaks to the API server:
// one API group each, JSON, no discovery.
package kube

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
)

// Client makes a client for one version of a named API group, whose types add
// registers. The returned function lets go of its idle connections.
func Client(config *rest.Config, version schema.GroupVersion, add func(*runtime.Scheme) error) (rest.Interface, func(), error) {
	scheme := runtime.NewScheme()
	if err := add(scheme); err != nil {
		return nil, nil, fmt.Errorf("registering types: %w", err)
	}
	c := rest.CopyConfig(config)
	c.APIPath = "/apis"
	c.GroupVersion = &version
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	c.ContentType, c.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	web, err := rest.HTTPClientFor(c)
	if err != nil {
		return nil, nil, fmt.Errorf("making a client: %w", err)
	}
	client, err := rest.RESTClientForConfigAndClient(c, web)
	if err != nil {
		return nil, nil, fmt.Errorf("making a client: %w", err)
	}
	return client, web.CloseIdleConnections, nil
}
