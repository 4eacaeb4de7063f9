// Command cli-utils-apply applies a file of objects with the applier of sigs.k8s.io/cli-utils, server-side, with an inventory.
// It prints how many seconds that took, from the connection to the last event.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	"k8s.io/kubectl/pkg/cmd/util"
	"sigs.k8s.io/cli-utils/pkg/apply"
	"sigs.k8s.io/cli-utils/pkg/apply/event"
	"sigs.k8s.io/cli-utils/pkg/common"
	"sigs.k8s.io/cli-utils/pkg/inventory"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "file with the cluster's address and credentials")
	file := flag.String("file", "", "file with the objects, as YAML or JSON documents")
	namespace := flag.String("namespace", "", "where the inventory is kept")
	unlimited := flag.Bool("unlimited", false, "take client-go's rate limit away")
	flag.Parse()
	if err := run(*kubeconfig, *file, *namespace, *unlimited); err != nil {
		log.Fatal(err)
	}
}

func run(kubeconfig, file, namespace string, unlimited bool) error {
	objects, err := read(file)
	if err != nil {
		return err
	}
	flags := genericclioptions.NewConfigFlags(true)
	flags.KubeConfig = &kubeconfig
	if unlimited {
		flags.WrapConfigFn = func(config *rest.Config) *rest.Config {
			config.QPS, config.Burst = -1, -1
			return config
		}
	}
	began := time.Now()
	factory := util.NewFactory(flags)
	inventories, err := inventory.ClusterClientFactory{StatusPolicy: inventory.StatusPolicyNone}.NewClient(factory)
	if err != nil {
		return err
	}
	applier, err := apply.NewApplierBuilder().WithFactory(factory).WithInventoryClient(inventories).Build()
	if err != nil {
		return err
	}
	of := inventory.WrapInventoryInfoObj(inventoryIn(namespace))
	options := apply.ApplierOptions{
		ServerSideOptions: common.ServerSideOptions{ServerSideApply: true, FieldManager: "cli-utils"},
		InventoryPolicy:   inventory.PolicyMustMatch,
	}
	applied := 0
	for happened := range applier.Run(context.Background(), of, objects, options) {
		switch happened.Type {
		case event.ErrorType:
			return happened.ErrorEvent.Err
		case event.ApplyType:
			switch happened.ApplyEvent.Status {
			case event.ApplySuccessful:
				applied++
			case event.ApplyFailed, event.ApplySkipped:
				return happened.ApplyEvent.Error
			}
		}
	}
	fmt.Printf("objects=%d seconds=%f\n", applied, time.Since(began).Seconds())
	return nil
}

func read(file string) ([]*unstructured.Unstructured, error) {
	input, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer input.Close()
	var objects []*unstructured.Unstructured
	for documents := yaml.NewYAMLOrJSONDecoder(input, 4096); ; {
		object := &unstructured.Unstructured{}
		if err := documents.Decode(&object.Object); err != nil {
			if len(objects) > 0 && err == io.EOF {
				return objects, nil
			}
			return nil, err
		}
		objects = append(objects, object)
	}
}

func inventoryIn(namespace string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1",
		"kind":       "ConfigMap",
		"metadata": map[string]any{
			"name":      "inventory",
			"namespace": namespace,
			"labels":    map[string]any{common.InventoryLabel: namespace},
		},
	}}
}
