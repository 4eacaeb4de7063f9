"""Deploys a design, takes it down, or asks what would happen:

    client.py deploy|undeploy|dry-run DESIGN CLUSTER[=KUBECONFIG]...

PLANNER and EXECUTOR say where the two are. REQUEST_ID names the run: who starts again with it goes on with the same run.
"""

import os
import signal
import sys
import time
import uuid
from pathlib import Path

import grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from switchyard.v1 import executor_service_pb2, executor_service_pb2_grpc, plan_pb2, planner_service_pb2, planner_service_pb2_grpc
from switchyard.v1.executor_service_pb2 import ExecuteRequest

OPTIONS = [
    # As much as the two send. The default of 4 MiB is too little for large designs.
    ("grpc.max_receive_message_length", 16 << 20),
    # A run can be silent for minutes: a connection that is gone shall be noticed all the same.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
]


def plan(planner, command, design, clusters):
    """Plans, and tells each problem of a design that is refused with its place."""
    request = planner_service_pb2.PlanRequest(
        design={"document": Path(design).read_text()},
        operation=plan_pb2.OPERATION_UNDEPLOY if command == "undeploy" else plan_pb2.OPERATION_DEPLOY,
        dry_run=command == "dry-run",
        clusters=clusters,
        problems_as_parts=True,
        # As bytes, so that what a newer planner says and these protos lack reaches the executor all the same.
        encoded=True,
        # The run goes on when the connection is lost, and we go on reading.
        options={"on_disconnect": plan_pb2.ON_DISCONNECT_CONTINUE},
    )
    parts = []
    for answer in planner.Plan(request, timeout=60):
        if answer.HasField("encoded"):
            parts.append(ExecuteRequest(encoded=answer.encoded))
        if answer.HasField("problem"):
            at = [*answer.problem.at, plan_pb2.Position()][0]
            print(f"{at.line}:{at.column}: {answer.problem.code}: {answer.problem.message}")
    return parts


class Run:
    """What is known of a run."""

    def __init__(self, executor):
        signal.signal(signal.SIGINT, signal.default_int_handler)  # Also where the shell has it ignored.
        self.executor = executor
        self.names = {}
        self.run_id = ""
        self.last = 0
        self.verdict = None

    def follow(self, parts):
        """Reads the run to its end, however often the connection is lost meanwhile. Ctrl-C stops the run."""
        for _ in range(60):
            try:
                self.read(parts)
                error = "the stream ended before its summary"
                wait = 1.0
            except grpc.RpcError as lost:
                wait = come_again(lost)
                if wait is None:
                    raise
                error = lost.details()
            except KeyboardInterrupt:
                if not self.run_id:
                    raise
                self.executor.CancelRun(executor_service_pb2.CancelRunRequest(run_id=self.run_id, reason="Ctrl-C"))
                continue
            if self.verdict is not None:
                return self.verdict == executor_service_pb2.VERDICT_SUCCEEDED
            print(f"after event {self.last}: {error}; again in {wait} s", flush=True)
            time.sleep(wait)
        raise TimeoutError("the executor cannot be reached")

    def read(self, parts):
        """Starts the run, or goes on reading it behind the last event that came."""
        if self.run_id:
            request = executor_service_pb2.WatchRunRequest(run_id=self.run_id, after_sequence=self.last)
            for answer in self.executor.WatchRun(request):
                self.take(answer.event)
        else:
            # Once all is sent the stream is closed to this side. That is no cancel: the run goes on.
            for event in self.executor.Execute(iter(parts)):
                self.take(event)

    def take(self, event):
        """Tells one event."""
        self.last = event.sequence
        kind = event.WhichOneof("event")
        told = getattr(event, kind) if kind else None  # None: an event that these protos lack.
        if kind == "run_started":
            self.run_id = told.run_id
            print("run", told.run_id)
        elif kind == "step_started":
            self.names[told.step_id] = told.component
        elif kind == "step_progress":
            print(self.names[told.step_id], "waits for", told.waiting_for)
        elif kind == "target_result":
            outcome = executor_service_pb2.Outcome.Name(told.outcome)
            change = executor_service_pb2.Change.Name(told.change)
            print(self.names[told.step_id], "on", told.cluster or told.adapter_address, outcome, change, told.error.message)
            for diff in told.diff:
                print(f"  {diff.path}: {diff.before} -> {diff.after}")
        elif kind == "summary":
            for row in told.rows:
                print(row.component, executor_service_pb2.Outcome.Name(row.outcome), row.because)
            if told.complete:  # A large summary comes in several messages; the last one has the verdict.
                self.verdict = told.verdict
                print(executor_service_pb2.Verdict.Name(told.verdict))
        sys.stdout.flush()


def details(error):
    """The details of a status, by type."""
    status = rpc_status.from_call(error)
    for detail in status.details if status else []:
        for kind in (
            error_details_pb2.ErrorInfo,
            error_details_pb2.RetryInfo,
            error_details_pb2.BadRequest,
            error_details_pb2.PreconditionFailure,
        ):
            if detail.Is(kind.DESCRIPTOR):
                message = kind()
                detail.Unpack(message)
                yield message


def come_again(error):
    """In how many seconds the same call may be made again; None if it may not."""
    told = {detail.DESCRIPTOR.name: detail for detail in details(error)}
    if "RetryInfo" in told:
        return told["RetryInfo"].retry_delay.ToTimedelta().total_seconds()
    # What neither planner nor executor said happened on the way to them.
    lost = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN
    return 1.0 if error.code() in lost and "ErrorInfo" not in told else None


def main():
    command, design, *clusters = sys.argv[1:]
    names = [cluster.partition("=")[0] for cluster in clusters]
    parts = [ExecuteRequest(start={"request_id": os.environ.get("REQUEST_ID") or str(uuid.uuid4())})]
    for name, _, path in (cluster.partition("=") for cluster in clusters):
        if path:  # Else it is a context of the executor's own kubeconfig.
            parts.append(ExecuteRequest(cluster={"name": name, "kubeconfig": Path(path).read_text()}))
    with (
        grpc.insecure_channel(os.environ.get("PLANNER", "localhost:7001"), OPTIONS) as to_planner,
        grpc.insecure_channel(os.environ.get("EXECUTOR", "localhost:7002"), OPTIONS) as to_executor,
    ):
        try:
            parts += plan(planner_service_pb2_grpc.PlannerServiceStub(to_planner), command, design, names)
            run = Run(executor_service_pb2_grpc.ExecutorServiceStub(to_executor))
            return run.follow(parts)
        except grpc.RpcError as refused:
            print(f"{refused.code()}: {refused.details()}")
            for detail in details(refused):
                print(f"  {detail}")
            return False


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
