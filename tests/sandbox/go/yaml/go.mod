module switchyard.test/yaml

go 1.26

require (
	go.yaml.in/yaml/v2 v2.4.2
	go.yaml.in/yaml/v3 v3.0.3
	sigs.k8s.io/yaml v1.6.0
)
