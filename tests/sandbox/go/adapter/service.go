package main

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"k8s.io/client-go/tools/clientcmd"

	"switchyard.test/adapter/meshes"
)

// Service is the adapter.
type Service struct {
	meshes.UnimplementedMeshServiceServer

	knobs   Knobs
	log     *Log
	calls   atomic.Int64
	running atomic.Int64
}

// request is what both methods ask for.
type request struct {
	method      string
	username    string
	deletes     bool
	components  []string
	kubeconfigs []string
	read        func(component string) (object, error)
}

// MeshName names the adapter.
func (s *Service) MeshName(context.Context, *meshes.MeshNameRequest) (*meshes.MeshNameResponse, error) {
	return &meshes.MeshNameResponse{Name: "REFERENCE"}, nil
}

// ComponentInfo describes the adapter.
func (s *Service) ComponentInfo(context.Context, *meshes.ComponentInfoRequest) (*meshes.ComponentInfoResponse, error) {
	return &meshes.ComponentInfoResponse{Type: "adapter", Name: "reference", Version: "1"}, nil
}

// Provision takes components in the design's own shape.
func (s *Service) Provision(ctx context.Context, in *meshes.ProvisionRequest) (*meshes.ProvisionResponse, error) {
	if s.knobs.onlyProcessOAM {
		s.log.write(Entry{Event: "call", ID: s.calls.Add(1), Method: "Provision", Code: codes.Unimplemented.String()})
		return s.UnimplementedMeshServiceServer.Provision(ctx, in)
	}
	message, err := s.serve(ctx, request{
		"Provision", in.GetUsername(), in.GetDeleteOp(), in.GetDeclarations(), in.GetKubeConfigs(), fromDeclaration,
	})
	if err != nil {
		return nil, err
	}
	return &meshes.ProvisionResponse{Message: message}, nil
}

// ProcessOAM takes components as OAM documents.
func (s *Service) ProcessOAM(ctx context.Context, in *meshes.ProcessOAMRequest) (*meshes.ProcessOAMResponse, error) {
	if s.knobs.onlyProvision {
		s.log.write(Entry{Event: "call", ID: s.calls.Add(1), Method: "ProcessOAM", Code: codes.Unimplemented.String()})
		return s.UnimplementedMeshServiceServer.ProcessOAM(ctx, in)
	}
	message, err := s.serve(ctx, request{
		"ProcessOAM", in.GetUsername(), in.GetDeleteOp(), in.GetOamComps(), in.GetKubeConfigs(), fromOAM,
	})
	if err != nil {
		return nil, err
	}
	return &meshes.ProcessOAMResponse{Message: message}, nil
}

// serve logs the call, does what the knobs say, and the work.
func (s *Service) serve(ctx context.Context, r request) (string, error) {
	running := s.running.Add(1)
	defer s.running.Add(-1)
	id := s.calls.Add(1)
	s.log.write(r.entry(ctx, id, running))
	if s.knobs.crashOnTwo && running > 1 {
		os.Exit(2)
	}
	message, err := s.misbehave(ctx, id, running, r)
	s.log.write(Entry{Event: "end", ID: id, Code: status.Code(err).String(), Left: ctx.Err() != nil})
	return message, err
}

func (s *Service) misbehave(ctx context.Context, id, running int64, r request) (string, error) {
	k := s.knobs
	switch {
	case k.busy > 0 && running > k.busy:
		return "", status.Error(codes.ResourceExhausted, "too many calls at once")
	case k.fail != "":
		return "", status.Error(codes.Unknown, k.fail)
	case k.quoteKubeconfig:
		return "", status.Error(codes.Unknown, "cannot use "+strings.Join(r.kubeconfigs, "\n"))
	case k.hang:
		<-ctx.Done()
		return "", ctx.Err()
	}
	time.Sleep(k.slow + k.writeLate)
	message := "\n"
	if !k.okNothing && !(k.keepOnDelete && r.deletes) {
		kubeconfigs := r.kubeconfigs
		if k.failEmpty {
			kubeconfigs = kubeconfigs[:len(kubeconfigs)/2]
		}
		// What the caller has left of its time or its interest plays no part, as in the field.
		done, err := work(context.WithoutCancel(ctx), k, r, kubeconfigs)
		if err != nil {
			return "", err
		}
		message = done
	}
	s.log.write(Entry{Event: "written", ID: id, Left: ctx.Err() != nil})
	if k.dieMidCall && !s.hasDied() {
		os.Exit(3)
	}
	switch {
	case k.failEmpty:
		return "", status.Error(codes.Unknown, "")
	case k.failAfter != "":
		return "", status.Error(codes.Unknown, k.failAfter)
	}
	return message, nil
}

// hasDied tells whether the one death that -die-once allows has been died, and notes it.
func (s *Service) hasDied() bool {
	if s.knobs.dieOnce == "" {
		return false
	}
	file, err := os.OpenFile(s.knobs.dieOnce, os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return true
	}
	_ = file.Close()
	return false
}

func (r request) entry(ctx context.Context, id, running int64) Entry {
	entry := Entry{
		Event: "call", ID: id, Method: r.method, DeleteOp: r.deletes, Username: r.username,
		Kubeconfigs: len(r.kubeconfigs), Running: running, Compression: *ctx.Value(compressionKey{}).(*string),
	}
	if len(r.components) == 1 && json.Valid([]byte(r.components[0])) && len(r.components[0]) < 64*1024 {
		entry.Component = json.RawMessage(r.components[0])
	}
	for _, component := range r.components {
		if object, err := r.read(component); err == nil {
			entry.Names = append(entry.Names, object.name)
		}
	}
	for _, text := range r.kubeconfigs {
		servers := []string{}
		if config, err := clientcmd.Load([]byte(text)); err == nil {
			for _, cluster := range config.Clusters {
				servers = append(servers, cluster.Server)
			}
		}
		entry.Servers = append(entry.Servers, servers)
	}
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline).Milliseconds()
		entry.Deadline = &left
	}
	if headers, ok := metadata.FromIncomingContext(ctx); ok {
		entry.Traceparent = strings.Join(headers.Get("traceparent"), ",")
		entry.Run = strings.Join(headers.Get("switchyard-run-id"), ",")
		entry.Step = strings.Join(headers.Get("switchyard-step-id"), ",")
	}
	return entry
}
