// The pipelines that reported to the server. Part of the lake screen.

import { get } from "../api";
import { ago, count, duration } from "../format";
import { Badge } from "../parts/controls";
import { Empty, Settled } from "../parts/states";
import { Table } from "../parts/table";
import { usePoll } from "../poll";
import type { OutputStatus, PipelineList, PipelineStatus } from "../types";

type Row = { pipeline: PipelineStatus; output: OutputStatus };

const KINDS: Record<string, "good" | "warn" | "bad"> = { running: "good", silent: "warn", failed: "bad" };

export function Pipelines() {
  const polled = usePoll((signal) => get<PipelineList>("/v0/pipelines", signal), 2000, []);
  return (
    <>
      <h2>Pipelines</h2>
      <Settled of={polled} rows={3}>
        {({ pipelines }) => (pipelines.length ? <Content pipelines={pipelines} /> : <None />)}
      </Settled>
    </>
  );
}

function None() {
  return (
    <Empty title="No pipeline reported within the last day" commands={["mainstem pipeline run my_pipeline.py"]}>
      A pipeline reads topics and writes topics or tables, and shows here how it does.
    </Empty>
  );
}

function Content({ pipelines }: { pipelines: PipelineStatus[] }) {
  const rows: Row[] = pipelines.flatMap((pipeline) => pipeline.outputs.map((output) => ({ pipeline, output })));
  return (
    <>
      <Table
        label="Pipelines"
        rows={rows}
        keyOf={(row) => `${row.pipeline.pipeline}:${row.output.output}`}
        columns={[
          { name: "Pipeline", cell: ({ pipeline }) => <span class="name">{pipeline.pipeline}</span>, wide: true },
          { name: "State", cell: ({ pipeline }) => <Badge kind={KINDS[pipeline.state] ?? "plain"}>{pipeline.state}</Badge> },
          { name: "Output", cell: ({ output }) => output.output },
          { name: "To", cell: ({ output }) => output.target },
          { name: "Batch", cell: ({ output }) => (output.batch < 0 ? "–" : count(output.batch)), number: true },
          { name: "Duration", cell: ({ output }) => (output.batch < 0 ? "–" : duration(output.batch_ms)), number: true },
          { name: "Rows in", cell: ({ output }) => count(output.rows_in), number: true },
          { name: "Rows out", cell: ({ output }) => count(output.rows_out), number: true },
          { name: "Behind", cell: ({ output }) => (output.behind === null ? "–" : count(output.behind)), number: true },
          { name: "Heard", cell: ({ pipeline }) => ago(pipeline.heard_ms), number: true },
        ]}
      />
      {pipelines
        .filter((pipeline) => pipeline.error)
        .map((pipeline) => (
          <div class="banner" role="alert" key={pipeline.pipeline}>
            {pipeline.pipeline} failed: {pipeline.error}
          </div>
        ))}
    </>
  );
}
