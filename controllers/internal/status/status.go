// Package status writes the status of our kinds: computed whole, compared, and
// written at most once per reconcile.
package status

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Writer writes statuses. It is safe for concurrent use.
type Writer struct {
	client client.Client
}

// NewWriter returns a Writer that writes through c.
func NewWriter(c client.Client) *Writer { return &Writer{client: c} }

// Write stores the status of after when it differs from before, which is the
// object as it was read. It never writes anything but the status subresource.
// The write is conditional on the version that was read, so that a decision
// made on a stale cache is made again instead of stored.
func (w *Writer) Write(ctx context.Context, before, after client.Object) error {
	if equality.Semantic.DeepEqual(before, after) {
		return nil
	}
	// The answer of the API server is decoded into the object that is patched;
	// the caller's copy stays what it computed.
	target, ok := after.DeepCopyObject().(client.Object)
	if !ok {
		return fmt.Errorf("writing status: %T is no object", after)
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := w.client.Status().Patch(ctx, target, patch); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing status: %w", err)
	}
	return nil
}
