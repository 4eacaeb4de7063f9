// Deploys a design, takes it down, or asks what would happen: client deploy|undeploy|dry-run DESIGN CLUSTER[=KUBECONFIG]...
// PLANNER and EXECUTOR say where the two are. REQUEST_ID names the run: who starts again with it goes on with the same run.
package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	sw "switchyard.test/client/gen/switchyard/v1"
)

func main() {
	if err := run(context.Background(), os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		fmt.Println(err)
		for _, detail := range status.Convert(err).Details() {
			fmt.Printf("  %v\n", detail)
		}
		os.Exit(1)
	}
}

func run(ctx context.Context, command, design string, clusters []string) error {
	document, err := os.ReadFile(design)
	request := &sw.PlanRequest{
		Design:          &sw.Design{Source: &sw.Design_Document{Document: string(document)}},
		Operation:       sw.Operation(sw.Operation_value["OPERATION_"+strings.ToUpper(command)]),
		DryRun:          command == "dry-run",
		ProblemsAsParts: true,
		// As bytes, so that what a newer planner says and these protos lack reaches the executor all the same.
		Encoded: true,
		// The run goes on when the connection is lost, and we go on reading.
		Options: &sw.RunOptions{OnDisconnect: sw.OnDisconnect_ON_DISCONNECT_CONTINUE},
	}
	start := &sw.Start{RequestId: cmp.Or(os.Getenv("REQUEST_ID"), rand.Text())}
	parts := []*sw.ExecuteRequest{{Part: &sw.ExecuteRequest_Start{Start: start}}}
	for _, cluster := range clusters {
		name, path, own := strings.Cut(cluster, "=")
		request.Clusters = append(request.Clusters, name)
		if own && err == nil { // Else it is a context of the executor's own kubeconfig.
			var text []byte
			text, err = os.ReadFile(path)
			source := &sw.ClusterAccess_Kubeconfig{Kubeconfig: string(text)}
			access := &sw.ExecuteRequest_Cluster{Cluster: &sw.ClusterAccess{Name: name, Source: source}}
			parts = append(parts, &sw.ExecuteRequest{Part: access})
		}
	}
	planner, broken := grpc.NewClient(cmp.Or(os.Getenv("PLANNER"), "localhost:7001"), options...)
	executor, wrong := grpc.NewClient(cmp.Or(os.Getenv("EXECUTOR"), "localhost:7002"), options...)
	c := caller{executor: sw.NewExecutorServiceClient(executor), parts: parts, names: map[string]string{}}
	if err = errors.Join(err, broken, wrong); err == nil {
		err = c.plan(ctx, sw.NewPlannerServiceClient(planner), request)
	}
	if err == nil {
		err = c.follow(ctx)
	}
	return err
}

var options = []grpc.DialOption{
	grpc.WithTransportCredentials(insecure.NewCredentials()),
	// As much as the two send. The default of 4 MiB is too little for large designs.
	grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16 << 20)),
	// A run can be silent for minutes: a connection that is gone shall be noticed all the same.
	grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
}

// What is sent for a run, and what is known of it.
type caller struct {
	executor sw.ExecutorServiceClient
	parts    []*sw.ExecuteRequest
	names    map[string]string
	runID    string
	last     uint64
	verdict  sw.Verdict
}

// Plans, and tells each problem of a design that is refused with its place.
func (c *caller) plan(ctx context.Context, planner sw.PlannerServiceClient, request *sw.PlanRequest) error {
	ctx, done := context.WithTimeout(ctx, time.Minute)
	defer done()
	answers, err := planner.Plan(ctx, request)
	for answer := (*sw.PlanResponse)(nil); err == nil; answer, err = answers.Recv() {
		if part := answer.GetEncoded(); part != nil {
			c.parts = append(c.parts, &sw.ExecuteRequest{Part: &sw.ExecuteRequest_Encoded{Encoded: part}})
		}
		if problem := answer.GetProblem(); problem != nil {
			at := append(problem.At, &sw.Position{})[0]
			fmt.Printf("%d:%d: %s: %s\n", at.Line, at.Column, problem.Code, problem.Message)
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// Reads the run to its end, however often the connection is lost meanwhile. Ctrl-C stops the run.
func (c *caller) follow(ctx context.Context) error {
	reading, stop := signal.NotifyContext(ctx, os.Interrupt)
	for tries := 0; ; tries++ {
		err := c.read(reading)
		switch wait, again := comeAgain(err); {
		case c.verdict == sw.Verdict_VERDICT_SUCCEEDED:
			return nil
		case c.verdict != sw.Verdict_VERDICT_UNSPECIFIED:
			return errors.New("the run did not succeed")
		case reading.Err() != nil && c.runID != "":
			stop()
			reading = ctx
			c.executor.CancelRun(ctx, &sw.CancelRunRequest{RunId: c.runID, Reason: "Ctrl-C"})
		case !again || tries == 60:
			return err
		default:
			fmt.Printf("after event %d: %v; again in %v\n", c.last, err, wait)
			time.Sleep(wait)
		}
	}
}

// Starts the run, or goes on reading it behind the last event that came.
func (c *caller) read(ctx context.Context) error {
	if c.runID != "" {
		answers, err := c.executor.WatchRun(ctx, &sw.WatchRunRequest{RunId: c.runID, AfterSequence: c.last})
		for answer := (*sw.WatchRunResponse)(nil); err == nil; answer, err = answers.Recv() {
			c.take(answer.GetEvent())
		}
		return err
	}
	events, err := c.executor.Execute(ctx)
	for sent := 0; err == nil && sent < len(c.parts); sent++ {
		err = events.Send(c.parts[sent])
	}
	if err == nil || errors.Is(err, io.EOF) { // Why sending ended early is told to who receives.
		err = events.CloseSend()
	}
	for event := (*sw.ExecuteResponse)(nil); err == nil; event, err = events.Recv() {
		c.take(event)
	}
	return err
}

// Tells one event.
func (c *caller) take(event *sw.ExecuteResponse) {
	c.last = max(c.last, event.GetSequence())
	switch event := event.GetEvent().(type) {
	case *sw.ExecuteResponse_RunStarted:
		c.runID = event.RunStarted.RunId
		fmt.Println("run", c.runID)
	case *sw.ExecuteResponse_StepStarted:
		c.names[event.StepStarted.StepId] = event.StepStarted.Component
	case *sw.ExecuteResponse_StepProgress:
		fmt.Println(c.names[event.StepProgress.StepId], "waits for", event.StepProgress.WaitingFor)
	case *sw.ExecuteResponse_TargetResult:
		result := event.TargetResult
		fmt.Println(c.names[result.StepId], "on", result.GetCluster()+result.GetAdapterAddress(),
			result.Outcome, result.Change, result.Error.GetMessage())
		for _, diff := range result.Diff {
			fmt.Printf("  %s: %s -> %s\n", diff.Path, diff.Before, diff.After)
		}
	case *sw.ExecuteResponse_Summary:
		for _, row := range event.Summary.Rows {
			fmt.Println(row.Component, row.Outcome, row.Because)
		}
		if event.Summary.Complete { // A large summary comes in several messages; the last one has the verdict.
			c.verdict = event.Summary.Verdict
			fmt.Println(c.verdict)
		}
	}
}

// When the same call may be made again, if it may.
func comeAgain(err error) (time.Duration, bool) {
	ours := false
	for _, detail := range status.Convert(err).Details() {
		switch detail := detail.(type) {
		case *errdetails.RetryInfo:
			return detail.RetryDelay.AsDuration(), true
		case *errdetails.ErrorInfo:
			ours = ours || detail.Domain == "switchyard"
		}
	}
	// What neither planner nor executor said happened on the way to them; so did what ends before its summary.
	code := status.Code(err)
	return time.Second, !ours && (code == codes.Unavailable || code == codes.Internal || code == codes.Unknown)
}
