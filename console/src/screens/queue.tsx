import { useState } from "preact/hooks";
import { get, path, post, query } from "../api";
import { summary } from "../content";
import { count, duration, plural, time } from "../format";
import { Button, Figure } from "../parts/controls";
import { notify } from "../parts/notices";
import { Empty, Settled } from "../parts/states";
import { Table } from "../parts/table";
import { usePoll } from "../poll";
import { useLacking } from "../rights";
import { to } from "../route";
import type { LeaseList, Message, MessageList, TopicDescription, TopicSummaries } from "../types";

const DEAD_SHOWN = 100;
const LOOKED_AT = 100;

interface View {
  state: TopicDescription;
  held: LeaseList;
  dead: Message[] | undefined; // undefined: the topic does not exist
}

export function Queue({ name }: { name: string }) {
  const polled = usePoll((signal) => load(name, signal), 1500, [name]);
  return (
    <section class="screen">
      <div class="screen-head">
        <p class="crumbs">
          <a href={to("queues")}>Queues</a>
        </p>
        <h1 class="name">{name}</h1>
        <span class="grow" />
        <a href={to("topics", name, "messages")}>Messages</a>
        <a href={to("topics", name, "produce")}>Produce</a>
        <a href={to("topics", name, "config")}>Config</a>
      </div>
      <Settled of={polled} rows={8}>
        {(view) => <Content name={name} view={view} reload={polled.reload} />}
      </Settled>
    </section>
  );
}

async function load(name: string, signal: AbortSignal): Promise<View> {
  const [state, held] = await Promise.all([
    get<TopicDescription>(path`/v0/topics/${name}` + "?touch=false", signal),
    get<LeaseList>(path`/v0/topics/${name}/leases`, signal),
  ]);
  const target = state.config.dead_letter;
  const dead = target ? await deadLetters(name, target, signal) : undefined;
  return { state, held, dead };
}

async function deadLetters(queue: string, target: string, signal: AbortSignal): Promise<Message[] | undefined> {
  // The first dead letter creates the topic, and this key may not see it: check before reading it.
  const found = await get<TopicSummaries>("/v0/overview/topics" + query({ search: target, limit: LOOKED_AT }), signal);
  if (!found.topics.some((row) => row.topic === target)) return undefined;
  const page = await get<MessageList>(
    path`/v0/topics/${target}/messages` + query({ limit: DEAD_SHOWN, header: `"$dead_letter_from":"${queue}"` }),
    signal,
  );
  return page.messages.reverse();
}

function Content({ name, view, reload }: { name: string; view: View; reload: () => void }) {
  const { state, held, dead } = view;
  const target = state.config.dead_letter;
  const writing = useLacking("write");
  const requeueing = useLacking("write", "delete");
  const [busy, setBusy] = useState(false);
  const release = async (seq: number, node: string, lease: string) => {
    await post(path`/v0/topics/${name}/nack`, { node, seqs: [seq], lease_ids: [lease] });
    notify(`Job ${seq} can be claimed again.`);
    reload();
  };
  const requeue = async (seqs: number[]) => {
    setBusy(true);
    try {
      const done = await post<{ requeued: unknown[]; skipped: number[] }>(path`/v0/topics/${target ?? ""}/requeue`, { seqs });
      notify(
        `${plural(done.requeued.length, "job")} returned to ${name}` +
          (done.skipped.length ? `, ${count(done.skipped.length)} skipped.` : "."),
      );
    } finally {
      setBusy(false);
      reload();
    }
  };
  return (
    <>
      <div class="figures">
        <Figure label="Ready" value={count(held.ready)} note="ready to claim" />
        <Figure label="In flight" value={count(held.in_flight)} note={`leased for ${duration(state.config.lease_ms)}`} />
        <Figure label="Delayed" value={count(held.delayed.length)} note="returned or sent with a delay, not due" />
        <Figure
          label="Dead-lettered"
          value={count(held.dead_lettered)}
          note={
            state.config.max_deliveries
              ? `after ${plural(state.config.max_deliveries, "delivery", "deliveries")}${target ? ` to ${target}` : ""}`
              : "never: max_deliveries is 0"
          }
        />
      </div>
      <h2>Leases</h2>
      {held.leases.length ? (
        <Table
          label="Leases"
          rows={held.leases}
          keyOf={(row) => row.$seq}
          columns={[
            { name: "Job", cell: (row) => count(row.$seq), number: true },
            { name: "Node", cell: (row) => row.node, wide: true },
            { name: "Deliveries", cell: (row) => row.deliveries, number: true },
            { name: "Expires in", cell: (row) => duration(Math.max(0, row.deadline - held.now_ms)), number: true },
            {
              name: "",
              cell: (row) => (
                <Button small lacking={writing} onPress={() => release(row.$seq, row.node, row.lease_id)}>
                  Release
                </Button>
              ),
            },
          ]}
        />
      ) : (
        <Empty
          title="No job is leased"
          commands={[
            `curl ${location.origin}/v0/topics/${name}/claim -H 'Content-Type: application/json' -d '{"node":"worker-1","max":10}'`,
          ]}
        />
      )}
      {held.delayed.length > 0 && (
        <>
          <h2>Delayed</h2>
          <Table
            label="Delayed"
            rows={held.delayed}
            keyOf={(row) => row.$seq}
            columns={[
              { name: "Job", cell: (row) => count(row.$seq), number: true },
              { name: "Deliveries", cell: (row) => row.deliveries, number: true },
              { name: "Due in", cell: (row) => duration(Math.max(0, row.due - held.now_ms)), number: true },
              { name: "", cell: () => "", wide: true },
            ]}
          />
        </>
      )}
      <div class="heading-row">
        <h2>Dead letters</h2>
        {!!dead?.length && (
          <Button small lacking={requeueing ?? (busy ? "in progress" : undefined)} onPress={() => requeue(dead.map((one) => one.offset + 1))}>
            Requeue all shown
          </Button>
        )}
      </div>
      {!target ? (
        <p class="muted">
          The queue has no dead_letter topic. <a href={to("topics", name, "config")}>Set one</a> together with max_deliveries.
        </p>
      ) : dead?.length ? (
        <Table
          label="Dead letters"
          rows={dead}
          keyOf={(row) => row.offset}
          columns={[
            { name: "Number", cell: (row) => count(row.offset + 1), number: true },
            { name: "Since", cell: (row) => time(row.timestamp_ms) },
            { name: "Value", cell: (row) => <span class="mono">{summary(row.value, 160)}</span>, wide: true },
            {
              name: "",
              cell: (row) => (
                <Button small lacking={requeueing} onPress={() => requeue([row.offset + 1])}>
                  Requeue
                </Button>
              ),
            },
          ]}
        />
      ) : (
        <p class="muted">
          {target} holds no dead letters of this queue.
        </p>
      )}
    </>
  );
}
