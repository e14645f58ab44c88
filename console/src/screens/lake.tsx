import { useState } from "preact/hooks";
import { get } from "../api";
import { ago, bytes, count, duration, plural, rate } from "../format";
import { Badge, Check, Figure } from "../parts/controls";
import { Empty, Settled } from "../parts/states";
import { Table } from "../parts/table";
import { usePoll } from "../poll";
import { go } from "../route";
import type { LakeStatus, LakeTopic } from "../types";
import { Pipelines } from "./pipelines";

const SHOWN = 200;

export function Lake() {
  const polled = usePoll((signal) => get<LakeStatus>("/v0/lake/status", signal), 2000, []);
  return (
    <section class="screen">
      <div class="screen-head">
        <h1>Lake and pipelines</h1>
        <span class="muted">{polled.data && <code>{polled.data.store}</code>}</span>
      </div>
      <Settled of={polled} rows={8}>
        {(status) => <Content status={status} />}
      </Settled>
    </section>
  );
}

function Content({ status }: { status: LakeStatus }) {
  const [all, setAll] = useState(false);
  const wanted = status.topics.filter((topic) => topic.wanted || topic.file_bytes > 0);
  const topics = all ? status.topics : wanted;
  const failing = status.drivers.flatMap((driver) => driver.report.failing);
  const unpublished = status.drivers.filter((driver) => driver.report.tables_error);
  return (
    <>
      <div class="figures">
        <Figure label="Drivers" value={count(status.drivers.length)} note={status.drivers.length ? "at work or waiting" : "none is running"} />
        <Figure label="Tasks leased" value={count(status.tasks.length)} />
        <Figure label="Lag" value={count(wanted.reduce((sum, topic) => sum + topic.lag_records, 0))} note="records not in Parquet yet" />
        <Figure label="Parquet" value={bytes(status.topics.reduce((sum, topic) => sum + topic.file_bytes, 0))} note={plural(wanted.length, "topic")} />
        <Figure label="Garbage" value={count(status.garbage)} note="files to be deleted" />
      </div>
      <h2>Drivers</h2>
      {status.drivers.length ? (
        <Table
          label="Drivers"
          rows={status.drivers}
          keyOf={(row) => row.report.holder}
          columns={[
            { name: "Driver", cell: (row) => <span class="name">{row.report.holder}</span>, wide: true },
            { name: "State", cell: (row) => <Badge kind={row.report.state === "working" ? "good" : "plain"}>{row.report.state}</Badge> },
            { name: "Rounds", cell: (row) => count(row.report.rounds), number: true },
            { name: "Running", cell: (row) => count(row.report.running), number: true },
            { name: "Done", cell: (row) => count(row.report.tasks), number: true },
            { name: "Failed", cell: (row) => count(row.report.failed), number: true },
            { name: "Records", cell: (row) => count(row.report.records), number: true },
            {
              name: "Records/s of a worker",
              cell: (row) => (row.report.seconds ? rate(row.report.records / row.report.seconds) : "–"),
              number: true,
            },
            { name: "Heard", cell: (row) => ago(row.heard_ms, status.now_ms), number: true },
          ]}
        />
      ) : (
        <Empty title="No driver is running" commands={["mainstem serve --lake", "mainstem lake run"]}>
          A driver turns old records into Parquet and publishes tables. One of these starts it:
        </Empty>
      )}
      {unpublished.map(({ report }) => (
        <p key={report.holder} class="problem" role="alert">
          {report.holder} publishes no table: {report.tables_error}
        </p>
      ))}
      <Pipelines />
      {failing.length > 0 && (
        <>
          <h2>Failing</h2>
          <Table
            label="Failing topics"
            rows={failing}
            keyOf={(row) => row.topic}
            columns={[
              { name: "Topic", cell: (row) => row.topic },
              { name: "Failures", cell: (row) => count(row.failures), number: true },
              { name: "Last", cell: (row) => ago(row.at_ms, status.now_ms), number: true },
              { name: "Error", cell: (row) => <span class="mono">{row.error}</span>, wide: true },
            ]}
          />
        </>
      )}
      {status.tasks.length > 0 && (
        <>
          <h2>Under way</h2>
          <Table
            label="Tasks"
            rows={status.tasks}
            keyOf={(row) => row.task}
            columns={[
              { name: "Task", cell: (row) => <span class="mono">{row.task}</span>, wide: true },
              { name: "Held by", cell: (row) => row.holder },
              { name: "Lease ends in", cell: (row) => duration(Math.max(0, row.deadline_ms - status.now_ms)), number: true },
            ]}
          />
        </>
      )}
      <div class="heading-row">
        <h2>Progress by topic</h2>
        <Check label="Also topics that stay in the log" value={all} onChange={setAll} />
      </div>
      {topics.length ? (
        <>
          <Table
            label="Progress by topic"
            rows={topics.slice(0, SHOWN)}
            keyOf={(row) => row.topic}
            onOpen={(row) => go("topics", row.topic, "table")}
            columns={[
              { name: "Topic", cell: (row) => <span class="name">{row.topic}</span>, wide: true },
              { name: "Made into Parquet", cell: (row) => <Progress topic={row} /> },
              { name: "Lag", cell: (row) => count(row.lag_records), number: true },
              { name: "Parts", cell: (row) => count(sum(row, (one) => one.parts)), number: true },
              { name: "Files", cell: (row) => count(sum(row, (one) => one.files)), number: true },
              { name: "Size", cell: (row) => bytes(row.file_bytes), number: true },
              {
                name: "Generations",
                cell: (row) => [...new Set(row.partitions.flatMap((one) => one.generations))].sort().join(", ") || "–",
              },
              {
                name: "Table",
                cell: (row) =>
                  row.partitions.some((one) => one.published_to !== null)
                    ? `to ${count(sum(row, (one) => one.published_to ?? 0))}`
                    : "–",
              },
            ]}
          />
          {topics.length > SHOWN && <p class="muted">The first {SHOWN} of {count(topics.length)}.</p>}
        </>
      ) : (
        <Empty title="No topic is to become Parquet" commands={[`curl -X PUT ${location.origin}/v0/topics/hello/table`]}>
          Show a topic as a table, and the lake takes care of it.
        </Empty>
      )}
    </>
  );
}

function Progress({ topic }: { topic: LakeTopic }) {
  const all = sum(topic, (one) => one.end - one.start);
  const done = sum(topic, (one) => Math.max(0, one.materialised_to - one.start));
  const share = all ? Math.round((100 * done) / all) : 100;
  return (
    <span class="progress">
      <progress max={100} value={share} aria-label={`${share} % of ${topic.topic}`} />
      <span class="number">{share} %</span>
    </span>
  );
}

function sum(topic: LakeTopic, pick: (one: LakeTopic["partitions"][number]) => number): number {
  return topic.partitions.reduce((total, one) => total + pick(one), 0);
}
