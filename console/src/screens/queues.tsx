import { useState } from "preact/hooks";
import { get, path, query } from "../api";
import { ago, bytes, count, plural, rate } from "../format";
import { Figure, Search } from "../parts/controls";
import { Sparkline } from "../parts/sparkline";
import { Empty, Settled } from "../parts/states";
import { Table } from "../parts/table";
import { usePoll } from "../poll";
import { go } from "../route";
import type { TopicDescription, TopicSummaries, TopicSummary } from "../types";

const SHOWN = 50;

interface QueueRow extends TopicSummary {
  ready: number;
  in_flight: number;
  dead_lettered: number;
}

const sumOf = (rows: QueueRow[], field: "ready" | "in_flight" | "dead_lettered") =>
  rows.reduce((sum, row) => sum + row[field], 0);

export function Queues() {
  const [search, setSearch] = useState("");
  const polled = usePoll((signal) => load(search, signal), 2000, [search], true);
  return (
    <section class="screen">
      <div class="screen-head">
        <h1>Queues</h1>
        <span class="muted">{polled.data && plural(polled.data.total, "queue")}</span>
        <span class="grow" />
        <Search label="Search queues" value={search} onChange={setSearch} />
      </div>
      <Settled of={polled} rows={8}>
        {({ rows, total }) =>
          rows.length === 0 ? (
            <Empty
              title={search ? `No queue name contains “${search}”` : "There are no queues yet"}
              commands={
                search
                  ? undefined
                  : [
                      `curl -X PUT ${location.origin}/v0/topics/jobs -H 'Content-Type: application/json' -d '{"type":"queue","max_deliveries":3,"dead_letter":"jobs.dead"}'`,
                      `curl ${location.origin}/v0/topics/jobs/claim -H 'Content-Type: application/json' -d '{"node":"worker-1"}'`,
                    ]
              }
            >
              {!search && "A queue is a topic whose records are claimed, processed and acknowledged one by one."}
            </Empty>
          ) : (
            <>
              <div class="figures">
                <Figure label="Queues" value={count(total)} note={`${count(rows.filter((row) => row.dead_lettered).length)} with dead letters`} />
                <Figure label="Ready" value={count(sumOf(rows, "ready"))} note="jobs to claim" />
                <Figure label="In flight" value={count(sumOf(rows, "in_flight"))} note="leased to workers" />
                <Figure label="Dead-lettered" value={count(sumOf(rows, "dead_lettered"))} note="failed too often" />
              </div>
              <Table
                label="Queues"
                rows={rows}
                keyOf={(row) => row.topic}
                onOpen={(row) => go("queues", row.topic)}
                columns={[
                  { name: "Queue", cell: (row) => <span class="name">{row.topic}</span>, wide: true },
                  { name: "Ready", cell: (row) => count(row.ready), number: true },
                  { name: "In flight", cell: (row) => count(row.in_flight), number: true },
                  { name: "Dead-lettered", cell: (row) => count(row.dead_lettered), number: true },
                  {
                    name: "Records/s",
                    cell: (row) => (
                      <>
                        <Sparkline values={row.recent} label="Records per second in the last two minutes" />
                        {row.recent.length ? rate(row.recent[row.recent.length - 1] ?? 0) : "–"}
                      </>
                    ),
                    number: true,
                  },
                  { name: "Size", cell: (row) => bytes(row.bytes), number: true },
                  { name: "Last write", cell: (row) => ago(row.last_write_ms), number: true },
                ]}
              />
              {total > rows.length && <p class="muted">The first {count(rows.length)}. Search for the others.</p>}
            </>
          )
        }
      </Settled>
    </section>
  );
}

async function load(search: string, signal: AbortSignal): Promise<{ rows: QueueRow[]; total: number }> {
  const found = await get<TopicSummaries>("/v0/overview/topics" + query({ type: "queue", search, limit: SHOWN }), signal);
  const rows = await Promise.all(
    found.topics.map(async (row) => {
      const state = await get<TopicDescription>(path`/v0/topics/${row.topic}` + "?touch=false", signal);
      return { ...row, ...(state.queue ?? { ready: 0, in_flight: 0, dead_lettered: 0 }) };
    }),
  );
  return { rows, total: found.total };
}
