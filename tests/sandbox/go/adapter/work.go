package main

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
)

var namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// work writes or deletes every component on every cluster. Components after one that fails are not tried, and earlier ones stay;
// so do the clusters before one that fails. Its error has no text, as in the field.
func work(ctx context.Context, k Knobs, r request, kubeconfigs []string) (message string, err error) {
	// As in the field, where a panic becomes a status without a word.
	defer func() {
		if recover() != nil {
			message, err = "", status.Error(codes.Unknown, "")
		}
	}()
	var lines []string
	for _, component := range r.components {
		object, err := r.read(component)
		if err != nil {
			// Skipped, and the call may then succeed having done nothing.
			continue
		}
		if err := object.checked(); err != nil {
			return "", status.Error(codes.Unknown, err.Error())
		}
		if k.needNamespace && object.namespace == "" {
			panic("no namespace in the component")
		}
		for _, kubeconfig := range kubeconfigs {
			if err := onCluster(ctx, k, r.deletes, object, kubeconfig); err != nil {
				return "", status.Error(codes.Unknown, "")
			}
		}
		verb := "created"
		if r.deletes {
			verb = "deleted"
		}
		lines = append(lines, fmt.Sprintf("%s %s %q in namespace %q", verb, object.kind(), object.name, object.namespace))
	}
	return strings.Join(lines, "\n"), nil
}

func onCluster(ctx context.Context, k Knobs, deletes bool, o object, kubeconfig string) error {
	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(kubeconfig))
	if err != nil {
		return err
	}
	config.UserAgent = "reference-adapter"
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	resource, namespaced, err := find(discovery.NewDiscoveryClientForConfigOrDie(config), o)
	if err != nil {
		return err
	}
	var api dynamic.ResourceInterface = client.Resource(resource)
	if namespaced {
		namespace := o.namespace
		if namespace == "" {
			namespace = metav1.NamespaceDefault
		}
		if k.namespaceOnDelete {
			if err := ensureNamespace(ctx, client, namespace); err != nil {
				return err
			}
		}
		api = client.Resource(resource).Namespace(namespace)
	}
	if deletes {
		err := api.Delete(ctx, o.name, metav1.DeleteOptions{})
		if errors.IsNotFound(err) && !k.failOnAbsent {
			return nil
		}
		return err
	}
	return replace(ctx, k, api, o)
}

// replace writes the whole object, whatever was there and whoever made it.
func replace(ctx context.Context, k Knobs, api dynamic.ResourceInterface, o object) error {
	wanted := (&unstructured.Unstructured{Object: o.content}).DeepCopy()
	found, err := api.Get(ctx, o.name, metav1.GetOptions{})
	if errors.IsNotFound(err) {
		_, err = api.Create(ctx, wanted, metav1.CreateOptions{})
		return err
	}
	if err != nil {
		return err
	}
	wanted.SetResourceVersion(found.GetResourceVersion())
	_, err = api.Update(ctx, wanted, metav1.UpdateOptions{})
	if k.swallowImmutable && errors.IsInvalid(err) && strings.Contains(err.Error(), "immutable") {
		return nil
	}
	return err
}

func ensureNamespace(ctx context.Context, client dynamic.Interface, name string) error {
	namespace := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name},
	}}
	_, err := client.Resource(namespaces).Create(ctx, namespace, metav1.CreateOptions{})
	if errors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func find(client *discovery.DiscoveryClient, o object) (schema.GroupVersionResource, bool, error) {
	version, err := schema.ParseGroupVersion(o.apiVersion())
	if err != nil {
		return schema.GroupVersionResource{}, false, err
	}
	list, err := client.ServerResourcesForGroupVersion(o.apiVersion())
	if err != nil {
		return schema.GroupVersionResource{}, false, err
	}
	for _, resource := range list.APIResources {
		if resource.Kind == o.kind() && !strings.Contains(resource.Name, "/") {
			return version.WithResource(resource.Name), resource.Namespaced, nil
		}
	}
	return schema.GroupVersionResource{}, false, fmt.Errorf("kind %s is not served", o.kind())
}
