// Command flux-apply applies a file of objects the way that Flux's controllers do, with ssa.ResourceManager.
// It prints how many seconds that took, from the connection to the last answer.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/polling"
	"github.com/fluxcd/pkg/ssa"
	"github.com/fluxcd/pkg/ssa/utils"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"k8s.io/client-go/rest"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "file with the cluster's address and credentials")
	file := flag.String("file", "", "file with the objects, as YAML or JSON documents")
	// The defaults of kustomize-controller: --kube-api-qps, --kube-api-burst, --concurrent-ssa.
	qps := flag.Float64("qps", 50, "requests a second on average; below zero: no limit")
	burst := flag.Int("burst", 300, "requests that may come at once")
	concurrency := flag.Int("concurrency", 4, "objects that are compared with the cluster at once")
	flag.Parse()
	ctrllog.SetLogger(logr.Discard())
	if err := run(*kubeconfig, *file, float32(*qps), *burst, *concurrency); err != nil {
		log.Fatal(err)
	}
}

func run(kubeconfig, file string, qps float32, burst, concurrency int) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = qps, burst
	input, err := os.Open(file)
	if err != nil {
		return err
	}
	defer input.Close()
	objects, err := utils.ReadObjects(input)
	if err != nil {
		return err
	}
	began := time.Now()
	manager, err := manager(config, concurrency)
	if err != nil {
		return err
	}
	changes, err := manager.ApplyAll(context.Background(), objects, ssa.DefaultApplyOptions())
	if err != nil {
		return err
	}
	fmt.Printf("objects=%d seconds=%f\n", len(changes.Entries), time.Since(began).Seconds())
	return nil
}

func manager(config *rest.Config, concurrency int) (*ssa.ResourceManager, error) {
	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	mapper, err := apiutil.NewDynamicRESTMapper(config, transport)
	if err != nil {
		return nil, err
	}
	direct, err := client.New(config, client.Options{HTTPClient: transport, Mapper: mapper})
	if err != nil {
		return nil, err
	}
	poller := polling.NewStatusPoller(direct, mapper, polling.Options{})
	manager := ssa.NewResourceManager(direct, poller, ssa.Owner{Field: "flux", Group: "flux.switchyard.test"})
	manager.SetConcurrency(concurrency)
	return manager, nil
}
