package main

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json" // Keeps whole numbers whole.
)

// object is a component as a Kubernetes object.
type object struct {
	name, namespace string
	content         map[string]any
}

func (o object) apiVersion() string { return text(o.content, "apiVersion") }
func (o object) kind() string       { return text(o.content, "kind") }

// fromDeclaration reads a component in the design's own shape: the configuration is the object but for its identity.
func fromDeclaration(component string) (object, error) {
	var declaration map[string]any
	if err := json.Unmarshal([]byte(component), &declaration); err != nil {
		return object{}, err
	}
	content, _ := declaration["configuration"].(map[string]any)
	if content == nil {
		content = map[string]any{}
	}
	name := text(declaration, "displayName")
	_ = unstructured.SetNestedField(content, name, "metadata", "name")
	content["apiVersion"] = text(declaration, "component", "version")
	content["kind"] = text(declaration, "component", "kind")
	return object{name, text(content, "metadata", "namespace"), content}, nil
}

// fromOAM reads an OAM component the way adapters in the field do: apiVersion and kind from two annotations of one generation
// only, all annotations and labels as they come, and settings as the whole spec.
func fromOAM(component string) (object, error) {
	var oam map[string]any
	if err := json.Unmarshal([]byte(component), &oam); err != nil {
		return object{}, err
	}
	settings, _, err := unstructured.NestedMap(oam, "spec", "settings")
	if err != nil {
		return object{}, err
	}
	annotations, _, err := unstructured.NestedMap(oam, "metadata", "annotations")
	if err != nil {
		return object{}, err
	}
	labels, _, err := unstructured.NestedMap(oam, "metadata", "labels")
	if err != nil {
		return object{}, err
	}
	name := text(oam, "metadata", "name")
	metadata := map[string]any{"name": name, "annotations": annotations, "labels": labels}
	return object{name, text(oam, "metadata", "namespace"), map[string]any{
		"apiVersion": text(annotations, "design.meshmodel.io.k8s.APIVersion"),
		"kind":       strings.TrimPrefix(text(annotations, "design.meshmodel.io.k8s.Kind"), "/"),
		"metadata":   metadata,
		"spec":       settings,
	}}, nil
}

// checked tells what is missing, in the words of adapters in the field.
func (o object) checked() error {
	switch {
	case o.apiVersion() == "":
		return fmt.Errorf("failed to get API Version for: %s", o.name)
	case o.kind() == "":
		return fmt.Errorf("failed to get kind for: %s", o.name)
	}
	return nil
}

func text(content map[string]any, path ...string) string {
	value, _, _ := unstructured.NestedString(content, path...)
	return value
}
