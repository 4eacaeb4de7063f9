// Reads documents as Kubernetes and Meshery read them: YAML with sigs.k8s.io/yaml, and JSON with encoding/json. The judge of our
// own readers and of what we write.
//
// Standard input holds a JSON list of documents, each in base64, because a document need not be valid UTF-8. Standard output
// gets a JSON list of as many answers.
package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"

	yaml2 "go.yaml.in/yaml/v2"
	yaml3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"
)

// answer is what Go makes of one document.
type answer struct {
	// YAML is the document read as YAML; Error is what Go says against it.
	YAML  any    `json:"yaml"`
	Error string `json:"error,omitempty"`
	// Repeats says that the document is YAML but for a key that is there twice.
	Repeats bool `json:"repeats,omitempty"`
	// Merged is the document as yaml.v3 reads it, when it may hold a merge key. There, what a map says itself wins over what is
	// merged into it; in sigs.k8s.io/yaml, what stands further down.
	Merged any `json:"merged,omitempty"`
	// More says that more follows than one document.
	More bool `json:"more,omitempty"`
	// IsJSON says that the document is JSON, and JSON is the document read as that.
	IsJSON bool `json:"is_json,omitempty"`
	JSON   any  `json:"json"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	var documents []string
	if err := json.NewDecoder(os.Stdin).Decode(&documents); err != nil {
		return err
	}
	answers := make([]answer, len(documents))
	for i, encoded := range documents {
		document, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			return err
		}
		answers[i] = judge(document)
	}
	return json.NewEncoder(os.Stdout).Encode(answers)
}

// judge answers for one document. The reader is known to panic on some.
func judge(document []byte) (a answer) {
	if value, err := tree(document); err == nil {
		a.IsJSON, a.JSON = true, value
	}
	defer func() {
		if p := recover(); p != nil {
			a.YAML, a.Error = nil, fmt.Sprint("panic: ", p)
		}
	}()
	converted, err := yaml.YAMLToJSON(document)
	if err == nil {
		a.YAML, err = tree(converted)
	}
	if err != nil {
		a.Error = err.Error()
		return a
	}
	_, err = yaml.YAMLToJSONStrict(document)
	a.Repeats = err != nil
	a.More = more(document)
	if bytes.Contains(document, []byte("<<")) {
		a.Merged = merged(document)
	}
	return a
}

// more tells whether anything follows the first document, be it a second one or what is none.
func more(document []byte) bool {
	decoder := yaml2.NewDecoder(bytes.NewReader(document))
	var value any
	if err := decoder.Decode(&value); err != nil {
		return false
	}
	return decoder.Decode(&value) != io.EOF
}

// merged reads a document with yaml.v3.
func merged(document []byte) any {
	var value any
	if err := yaml3.Unmarshal(document, &value); err != nil {
		return nil
	}
	encoded, err := json.Marshal(textKeys(value))
	if err != nil {
		return nil
	}
	value, _ = tree(encoded)
	return value
}

// textKeys makes text of the keys of all maps.
func textKeys(value any) any {
	switch value := value.(type) {
	case []any:
		for i := range value {
			value[i] = textKeys(value[i])
		}
	case map[string]any:
		for key := range value {
			value[key] = textKeys(value[key])
		}
	case map[any]any:
		texts := make(map[string]any, len(value))
		for key, held := range value {
			texts[fmt.Sprint(key)] = textKeys(held)
		}
		return texts
	}
	return value
}

// tree reads JSON with numbers as they are written, each as {"$number": text}.
func tree(document []byte) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, fmt.Errorf("there is more behind the value")
	}
	return marked(value), nil
}

func marked(value any) any {
	switch value := value.(type) {
	case json.Number:
		return map[string]any{"$number": value.String()}
	case []any:
		for i := range value {
			value[i] = marked(value[i])
		}
	case map[string]any:
		for key := range value {
			value[key] = marked(value[key])
		}
	}
	return value
}
