package main

import (
	"context"
	"encoding/json"
	"os"
	"sync"

	"google.golang.org/grpc/stats"
)

// Log writes one JSON line for each connection, call and end of a call. It never holds a kubeconfig.
type Log struct {
	mutex sync.Mutex
	file  *os.File
}

// Entry is one line of the log.
type Entry struct {
	// Event is `connection`, `call`, `written` (what was asked for has been done) or `end`.
	Event string `json:"event"`
	// ID tells calls apart.
	ID     int64  `json:"id,omitempty"`
	Method string `json:"method,omitempty"`
	// Names are those of the components.
	Names    []string `json:"names,omitempty"`
	DeleteOp bool     `json:"delete_op,omitempty"`
	Username string   `json:"username,omitempty"`
	// Kubeconfigs is how many came; Servers are the URLs in each of them.
	Kubeconfigs int        `json:"kubeconfigs,omitempty"`
	Servers     [][]string `json:"servers,omitempty"`
	// Milliseconds that the caller is going to wait; absent if it said nothing of it.
	Deadline    *int64 `json:"deadline,omitempty"`
	Traceparent string `json:"traceparent,omitempty"`
	// Run and Step are what the caller says that the call belongs to.
	Run  string `json:"run,omitempty"`
	Step string `json:"step,omitempty"`
	// Compression that the request came in; none is the empty string.
	Compression string `json:"compression,omitempty"`
	// Running is how many calls were under way, this one included.
	Running int64 `json:"running,omitempty"`
	// Component is what an adapter was sent, as it came.
	Component json.RawMessage `json:"component,omitempty"`
	Code      string          `json:"code,omitempty"`
	// Left tells that the caller no longer waited when the call ended.
	Left bool `json:"left,omitempty"`
}

func openLog(path string) (*Log, error) {
	if path == "" {
		return &Log{}, nil
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	return &Log{file: file}, err
}

func (l *Log) write(entry Entry) {
	line, err := json.Marshal(entry)
	if err != nil || l.file == nil {
		return
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	_, _ = l.file.Write(append(line, '\n'))
}

type compressionKey struct{}

// TagRPC gives each call a place for what is known of it only below gRPC.
func (l *Log) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context {
	return context.WithValue(ctx, compressionKey{}, new(string))
}

// HandleRPC notes how a request is compressed.
func (l *Log) HandleRPC(ctx context.Context, event stats.RPCStats) {
	if header, ok := event.(*stats.InHeader); ok {
		*ctx.Value(compressionKey{}).(*string) = header.Compression
	}
}

// TagConn adds nothing.
func (l *Log) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn logs each connection.
func (l *Log) HandleConn(_ context.Context, event stats.ConnStats) {
	if _, ok := event.(*stats.ConnBegin); ok {
		l.write(Entry{Event: "connection"})
	}
}
