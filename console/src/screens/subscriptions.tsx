// Subscriptions of Pulsar clients: a list, and one of them with what can be done to it.

import { useState } from "preact/hooks";
import { del, get, path, post, query } from "../api";
import { count, plural } from "../format";
import { Badge, Button, Figure, Names, Search, TextField } from "../parts/controls";
import { Sparkline } from "../parts/sparkline";
import { Dialog } from "../parts/dialog";
import { notify } from "../parts/notices";
import { Empty, Settled } from "../parts/states";
import { Table } from "../parts/table";
import { usePoll } from "../poll";
import { useLacking } from "../rights";
import { go, to } from "../route";
import type { GroupDescription, GroupListing, GroupOffset, MessageList } from "../types";
import { Reset } from "./group";

const SHOWN = 500;
const PEEKED = 10;
const KIND = "subscription";

export function Subscriptions() {
  const [search, setSearch] = useState("");
  const polled = usePoll((signal) => get<{ groups: GroupListing[] }>("/v0/groups", signal), 3000, []);
  const all = (polled.data?.groups ?? []).filter((row) => row.kind === KIND);
  const found = all.filter((row) => row.group.toLowerCase().includes(search.toLowerCase()));
  return (
    <section class="screen">
      <div class="screen-head">
        <h1>Subscriptions</h1>
        <span class="muted">{polled.data && plural(found.length, "subscription")}</span>
        <span class="grow" />
        <Search label="Search subscriptions" value={search} onChange={setSearch} />
      </div>
      <Settled of={polled} rows={8}>
        {() =>
          all.length === 0 ? (
            <Empty title="There are no subscriptions" commands={["pulsar-client consume hello -s my-subscription -n 0"]}>
              A subscription shows up when its first Pulsar consumer connects.
            </Empty>
          ) : (
            <>
            <div class="figures">
              <Figure label="Subscriptions" value={count(all.length)} note={`${count(all.filter((row) => !row.members).length)} without consumers`} />
              <Figure label="Consumers" value={count(all.reduce((sum, row) => sum + (row.members ?? 0), 0))} note="connected" />
              <Figure label="Backlog" value={count(all.reduce((sum, row) => sum + (row.lag ?? 0), 0))} note="messages not acknowledged yet" />
            </div>
            <Table
              label="Subscriptions"
              rows={found.slice(0, SHOWN)}
              keyOf={(row) => row.group}
              onOpen={(row) => go("subscriptions", row.group)}
              columns={[
                { name: "Subscription", cell: (row) => <span class="name">{row.group}</span>, wide: true },
                {
                  name: "Backlog",
                  cell: (row) => (
                    <>
                      <Sparkline values={row.recent} label="Backlog in the last two minutes" />
                      {row.lag === null ? "–" : count(row.lag)}
                    </>
                  ),
                  number: true,
                },
                { name: "State", cell: (row) => <Badge kind={row.state === "Stable" ? "good" : "plain"}>{row.state}</Badge> },
                { name: "Consumers", cell: (row) => (row.members === null ? "–" : count(row.members)), number: true },
                { name: "Topics", cell: (row) => <Names of={row.topics} /> },
              ]}
            />
            </>
          )
        }
      </Settled>
    </section>
  );
}

const TYPES = { exclusive: "Exclusive", shared: "Shared", failover: "Failover", key_shared: "Key_Shared" };

export function Subscription({ name }: { name: string }) {
  const [resetting, setResetting] = useState(false);
  const [deleting, setDeleting] = useState(false);
  const [skipping, setSkipping] = useState<GroupOffset>();
  const [peeking, setPeeking] = useState<GroupOffset>();
  const lacking = useLacking("admin");
  const polled = usePoll((signal) => get<GroupDescription>(path`/v0/groups/${name}` + "?redirect=false", signal), 2000, [name]);
  const busy = polled.data?.members.length ? "the subscription has consumers: stop them first" : undefined;
  const change = async (row: GroupOffset, body: object, done: string) => {
    await post(path`/v0/groups/${name}/reset`, { topic: row.topic, partitions: [row.partition], ...body });
    notify(done);
    polled.reload();
  };
  return (
    <section class="screen">
      <div class="screen-head">
        <p class="crumbs">
          <a href={to("subscriptions")}>Subscriptions</a>
        </p>
        <h1 class="name">{name}</h1>
        <span class="grow" />
        <Button onPress={() => setResetting(true)} lacking={lacking}>
          Reset
        </Button>
        <Button kind="danger" onPress={() => setDeleting(true)} lacking={lacking ?? busy}>
          Delete subscription
        </Button>
      </div>
      <Settled of={polled} rows={8}>
        {(group) => {
          const rows = group.offsets.filter((row) => row.subscription !== null);
          return (
            <>
              <div class="figures">
                <Figure label="Backlog" value={count(group.lag)} note="records not acknowledged" />
                <Figure
                  label="Unacknowledged"
                  value={count(rows.reduce((sum, row) => sum + (row.subscription?.unacked ?? 0), 0))}
                  note="messages that consumers hold"
                />
                <Figure label="Consumers" value={count(group.members.length)} />
              </div>
              <h2>Partitions</h2>
              <Table
                label="Partitions"
                rows={rows}
                keyOf={(row) => `${row.topic}:${row.partition}`}
                columns={[
                  { name: "Topic", cell: (row) => <a href={to("topics", row.topic)}>{row.topic}</a>, wide: true },
                  { name: "Partition", cell: (row) => row.partition, number: true },
                  { name: "Type", cell: (row) => (row.subscription?.type ? TYPES[row.subscription.type] : "–") },
                  { name: "Consumers", cell: (row) => count(row.subscription?.consumers ?? 0), number: true },
                  { name: "First unacknowledged", cell: (row) => (row.offset === null ? "–" : count(row.offset)), number: true },
                  { name: "End", cell: (row) => count(row.end), number: true },
                  { name: "Backlog", cell: (row) => count(row.lag), number: true },
                  { name: "Unacknowledged", cell: (row) => count(row.subscription?.unacked ?? 0), number: true },
                  {
                    name: "",
                    cell: (row) => (
                      <span class="field-row">
                        <Button onPress={() => setPeeking(row)}>Peek</Button>
                        <Button onPress={() => setSkipping(row)} lacking={lacking}>
                          Skip
                        </Button>
                        <Button
                          onPress={() => change(row, { to: "redeliver" }, "The consumers get their messages again.")}
                          lacking={lacking ?? (row.subscription?.unacked ? undefined : "no consumer holds a message")}
                        >
                          Redeliver
                        </Button>
                      </span>
                    ),
                  },
                ]}
              />
              <h2>Consumers</h2>
              {group.members.length ? (
                <Table
                  label="Consumers"
                  rows={group.members}
                  keyOf={(row) => `${row.member_id} ${row.assignment.map((one) => `${one.topic}:${one.partitions}`)}`}
                  columns={[
                    { name: "Consumer", cell: (row) => <span class="mono">{row.member_id}</span>, wide: true },
                    {
                      name: "Reads",
                      cell: (row) => row.assignment.map((one) => `${one.topic} (${one.partitions.join(", ")})`).join("; "),
                    },
                  ]}
                />
              ) : (
                <p class="muted">The subscription has no consumers at this broker.</p>
              )}
              {resetting && (
                <Reset
                  group={group}
                  onClose={() => {
                    setResetting(false);
                    polled.reload();
                  }}
                />
              )}
            </>
          );
        }}
      </Settled>
      {skipping && <Skip row={skipping} onClose={() => setSkipping(undefined)} onSkip={change} />}
      {peeking && <Peek row={peeking} onClose={() => setPeeking(undefined)} />}
      {deleting && (
        <Dialog
          title={`Delete ${name}?`}
          action="Delete subscription"
          danger
          onClose={() => setDeleting(false)}
          onSubmit={async () => {
            await del(path`/v0/groups/${name}`);
            go("subscriptions");
          }}
        >
          <p>This deletes the subscriptions of this name in all topics. What they have not acknowledged is not delivered.</p>
        </Dialog>
      )}
    </section>
  );
}

function Skip(props: {
  row: GroupOffset;
  onClose: () => void;
  onSkip: (row: GroupOffset, body: object, done: string) => Promise<unknown>;
}) {
  const [records, setRecords] = useState("1");
  const wanted = Number(records);
  return (
    <Dialog
      title="Skip records"
      action="Skip"
      danger
      lacking={Number.isInteger(wanted) && wanted > 0 ? undefined : "enter a whole number"}
      onClose={props.onClose}
      onSubmit={() => props.onSkip(props.row, { to: "skip", count: wanted }, "The records are skipped.")}
    >
      <p>
        The next records of {props.row.topic}, partition {props.row.partition}, count as acknowledged without being delivered.
      </p>
      <TextField label="Records" type="number" value={records} onChange={setRecords} autofocus />
    </Dialog>
  );
}

function Peek({ row, onClose }: { row: GroupOffset; onClose: () => void }) {
  const { topic, partition } = row;
  const polled = usePoll(
    (signal) =>
      get<MessageList>(path`/v0/topics/${topic}/messages` + query({ partition, limit: PEEKED, from: row.offset ?? 0 }), signal),
    10_000,
    [topic, partition, row.offset],
  );
  return (
    <Dialog title={`Next records of ${topic}`} action="Close" noCancel onClose={onClose} onSubmit={() => Promise.resolve()}>
      <Settled of={polled} rows={PEEKED}>
        {(page) =>
          page.messages.length ? (
            <Table
              label="Next records"
              rows={page.messages}
              keyOf={(message) => message.offset}
              columns={[
                { name: "Offset", cell: (message) => count(message.offset), number: true },
                { name: "Key", cell: (message) => message.key?.text ?? message.key?.base64 ?? "–" },
                { name: "Value", cell: (message) => message.value?.text ?? message.value?.base64 ?? "–", wide: true },
              ]}
            />
          ) : (
            <Empty title="The backlog is empty" />
          )
        }
      </Settled>
    </Dialog>
  );
}
