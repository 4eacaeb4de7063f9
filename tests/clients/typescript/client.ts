// Deploys a design, takes it down, or asks what would happen:
//
//     node out/client.js deploy|undeploy|dry-run DESIGN CLUSTER[=KUBECONFIG]...
//
// PLANNER and EXECUTOR say where the two are. REQUEST_ID names the run: who starts again with it goes on with the same run.

import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

import { ClientError, Status, createChannel, createClientFactory } from "nice-grpc";
import { ErrorInfo, RetryInfo, RichClientError, errorDetailsClientMiddleware } from "nice-grpc-error-details";

import type { DeepPartial, ExecuteRequest, ExecuteResponse } from "./gen/switchyard/v1/executor_service.js";
import { ExecutorServiceDefinition, Outcome, Verdict } from "./gen/switchyard/v1/executor_service.js";
import { OnDisconnect, Operation } from "./gen/switchyard/v1/plan.js";
import { PlannerServiceDefinition } from "./gen/switchyard/v1/planner_service.js";

const OPTIONS = {
  // As much as the two send. The default of 4 MiB is too little for large designs.
  "grpc.max_receive_message_length": 16 << 20,
  // A run can be silent for minutes: a connection that is gone shall be noticed all the same.
  "grpc.keepalive_time_ms": 30_000,
  "grpc.keepalive_timeout_ms": 10_000,
};
const factory = createClientFactory().use(errorDetailsClientMiddleware);
const planner = factory.create(PlannerServiceDefinition, createChannel(process.env.PLANNER ?? "localhost:7001", undefined, OPTIONS));
const executor = factory.create(ExecutorServiceDefinition, createChannel(process.env.EXECUTOR ?? "localhost:7002", undefined, OPTIONS));

type Part = DeepPartial<ExecuteRequest>;

/** Plans, and tells each problem of a design that is refused with its place. */
async function plan(command: string, design: string, clusters: string[]): Promise<Part[]> {
  const request = {
    design: { source: { $case: "document", value: readFileSync(design, "utf8") } as const },
    operation: command === "undeploy" ? Operation.OPERATION_UNDEPLOY : Operation.OPERATION_DEPLOY,
    dryRun: command === "dry-run",
    clusters,
    problemsAsParts: true,
    // As bytes, so that what a newer planner says and these protos lack reaches the executor all the same.
    encoded: true,
    // The run goes on when the connection is lost, and we go on reading.
    options: { onDisconnect: OnDisconnect.ON_DISCONNECT_CONTINUE },
  };
  const parts: Part[] = [];
  for await (const { part } of planner.plan(request, { signal: AbortSignal.timeout(60_000) })) {
    if (part?.$case === "encoded") {
      parts.push({ part });
    } else if (part?.$case === "problem") {
      const { at, code, message } = part.value;
      console.log(`${at[0]?.line}:${at[0]?.column}: ${code}: ${message}`);
    }
  }
  return parts;
}

/** What is known of a run. */
class Run {
  private readonly names = new Map<string, string>();
  private readonly stop = new AbortController();
  private id = "";
  private last = 0;
  private verdict = Verdict.VERDICT_UNSPECIFIED;

  constructor(private readonly parts: Part[]) {
    process.once("SIGINT", () => this.stop.abort());
  }

  /** Reads the run to its end, however often the connection is lost meanwhile. Ctrl-C stops the run. */
  async follow(): Promise<boolean> {
    for (let tries = 0; ; tries++) {
      let wait: number | undefined = 1;
      let why = "the stream ended before its summary";
      try {
        await this.read();
      } catch (error) {
        wait = comeAgain(error);
        if (wait === undefined || tries === 60) throw error;
        why = String(error);
      }
      if (this.verdict !== Verdict.VERDICT_UNSPECIFIED) return this.verdict === Verdict.VERDICT_SUCCEEDED;
      console.log(`after event ${this.last}: ${why}; again in ${wait} s`);
      await sleep(wait * 1000);
    }
  }

  /** Starts the run, or goes on reading it behind the last event that came. */
  private async read(): Promise<void> {
    if (!this.id) {
      for await (const event of executor.execute(this.send())) this.take(event);
      return;
    }
    const cancel = () => void executor.cancelRun({ runId: this.id, reason: "Ctrl-C" });
    this.stop.signal.addEventListener("abort", cancel);
    if (this.stop.signal.aborted) cancel();
    for await (const { event } of executor.watchRun({ runId: this.id, afterSequence: this.last })) this.take(event!);
  }

  /** All parts. Then the stream stays open to this side, so that a cancel can follow. */
  private async *send(): AsyncGenerator<Part> {
    yield* this.parts;
    const { signal } = this.stop;
    if (!signal.aborted) await new Promise((stopped) => signal.addEventListener("abort", stopped, { once: true }));
    yield { part: { $case: "cancel", value: { reason: "Ctrl-C" } } };
  }

  /** Tells one event. */
  private take({ sequence, event }: ExecuteResponse): void {
    this.last = sequence;
    switch (event?.$case) {
      case "runStarted":
        this.id = event.value.runId;
        console.log(`run ${this.id}`);
        break;
      case "stepStarted":
        this.names.set(event.value.stepId, event.value.component);
        break;
      case "stepProgress":
        console.log(`${this.names.get(event.value.stepId)} waits for ${event.value.waitingFor}`);
        break;
      case "targetResult": {
        const { stepId, target, outcome, change, error, diff } = event.value;
        console.log(`${this.names.get(stepId)} on ${target?.value} ${outcome} ${change} ${error?.message ?? ""}`);
        for (const { path, before, after } of diff) console.log(`  ${path}: ${before} -> ${after}`);
        break;
      }
      case "summary":
        for (const { component, outcome, because } of event.value.rows) console.log(`${component} ${outcome} ${because}`);
        // A large summary comes in several messages; the last one has the verdict.
        if (event.value.complete) {
          this.verdict = event.value.verdict;
          console.log(this.verdict);
        }
    }
  }
}

/** In how many seconds the same call may be made again; undefined if it may not. */
function comeAgain(error: unknown): number | undefined {
  if (!(error instanceof ClientError)) return undefined;
  const details = error instanceof RichClientError ? error.extra : [];
  for (const detail of details) {
    if (detail.$type === RetryInfo.$type) return (detail.retryDelay?.seconds ?? 0) + (detail.retryDelay?.nanos ?? 0) / 1e9;
  }
  // What neither planner nor executor said happened on the way to them.
  const lost = [Status.UNAVAILABLE, Status.INTERNAL, Status.UNKNOWN].includes(error.code);
  return lost && !details.some((detail) => detail.$type === ErrorInfo.$type) ? 1 : undefined;
}

const [command, design, ...clusters] = process.argv.slice(2);
try {
  const start = { requestId: process.env.REQUEST_ID ?? randomUUID() };
  const parts: Part[] = [{ part: { $case: "start", value: start } }];
  for (const [name, kubeconfig] of clusters.map((cluster) => cluster.split("=", 2))) {
    // Without one it is a context of the executor's own kubeconfig.
    if (kubeconfig) {
      const source = { $case: "kubeconfig", value: readFileSync(kubeconfig, "utf8") } as const;
      parts.push({ part: { $case: "cluster", value: { name, source } } });
    }
  }
  parts.push(...(await plan(command, design, clusters.map((cluster) => cluster.split("=")[0]))));
  process.exit((await new Run(parts).follow()) ? 0 : 1);
} catch (error) {
  console.log(String(error));
  if (error instanceof RichClientError) for (const detail of error.extra) console.log(" ", JSON.stringify(detail));
  process.exit(1);
}
