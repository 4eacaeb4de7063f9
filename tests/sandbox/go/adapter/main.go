// Command adapter is a reference adapter on grpc-go: it speaks the adapters' contract as peers in the field do, writes for
// real to the clusters whose kubeconfigs it is given, and misbehaves as they do when it is told to.
//
// The code in meshes is generated; buf.gen.yaml says how.
package main

//go:generate buf generate

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/reflection"

	"switchyard.test/adapter/meshes"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "adapter:", err)
		os.Exit(1)
	}
}

func run() error {
	listen := flag.String("listen", "127.0.0.1:0", "address to listen on")
	portFile := flag.String("port-file", "", "file that the address in use is written to")
	callLog := flag.String("call-log", "", "file that gets one JSON line for each connection, call and end of a call")
	tlsCert := flag.String("tls-cert", "", "PEM file with the certificate; without it plaintext is spoken, as in the field")
	tlsKey := flag.String("tls-key", "", "PEM file with the key of -tls-cert")
	tlsClientCA := flag.String("tls-client-ca", "", "PEM file; with it callers must show a certificate")
	knobs := Knobs{}
	knobs.register(flag.CommandLine)
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	flush, err := startTracing(ctx)
	if err != nil {
		return err
	}
	defer flush()
	log, err := openLog(*callLog)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	options := []grpc.ServerOption{grpc.StatsHandler(otelgrpc.NewServerHandler()), grpc.StatsHandler(log)}
	if *tlsCert != "" {
		secure, err := secure(*tlsCert, *tlsKey, *tlsClientCA)
		if err != nil {
			return err
		}
		options = append(options, grpc.Creds(credentials.NewTLS(secure)))
	}
	// As in the field: no health service, reflection, and grpc-go's own limits (4 MiB a request, a ping in 5 minutes).
	server := grpc.NewServer(options...)
	meshes.RegisterMeshServiceServer(server, &Service{knobs: knobs, log: log})
	reflection.Register(server)
	if *portFile != "" {
		// Under its own name only when it is whole.
		unfinished := *portFile + ".unfinished"
		if err := os.WriteFile(unfinished, []byte(listener.Addr().String()+"\n"), 0o600); err != nil {
			return err
		}
		if err := os.Rename(unfinished, *portFile); err != nil {
			return err
		}
	}
	go func() {
		<-ctx.Done()
		server.Stop()
	}()
	return server.Serve(listener)
}

func secure(cert, key, clientCA string) (*tls.Config, error) {
	own, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS12}
	if clientCA != "" {
		text, err := os.ReadFile(clientCA)
		if err != nil {
			return nil, err
		}
		config.ClientAuth = tls.RequireAndVerifyClientCert
		config.ClientCAs = x509.NewCertPool()
		config.ClientCAs.AppendCertsFromPEM(text)
	}
	return config, nil
}

// startTracing sends spans where OTEL_EXPORTER_OTLP_ENDPOINT says; without it there are none.
func startTracing(ctx context.Context) (flush func(), err error) {
	if os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" {
		return func() {}, nil
	}
	exporter, err := otlptracegrpc.New(ctx)
	if err != nil {
		return nil, err
	}
	provider := trace.NewTracerProvider(trace.WithBatcher(exporter, trace.WithBatchTimeout(200*time.Millisecond)))
	otel.SetTracerProvider(provider)
	otel.SetTextMapPropagator(propagation.TraceContext{})
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_ = provider.Shutdown(ctx)
	}, nil
}
