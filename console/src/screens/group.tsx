import { useState } from "preact/hooks";
import { ApiError, del, explained, get, path, post } from "../api";
import { count, short } from "../format";
import { Chart } from "../parts/chart";
import { Badge, Button, Figure, Select, TextField } from "../parts/controls";
import { Dialog } from "../parts/dialog";
import { notify } from "../parts/notices";
import { Empty, Settled } from "../parts/states";
import { Table } from "../parts/table";
import { usePoll } from "../poll";
import { useLacking } from "../rights";
import { go, to } from "../route";
import type { GroupDescription, GroupHistory } from "../types";

/** The group as its coordinator describes it; without members, if that broker does not respond. */
async function described(name: string, signal: AbortSignal): Promise<GroupDescription> {
  try {
    return await get<GroupDescription>(path`/v0/groups/${name}`, signal);
  } catch (failure) {
    if (!(failure instanceof ApiError) || failure.status !== 503) throw failure;
    return await get<GroupDescription>(path`/v0/groups/${name}` + "?redirect=false", signal);
  }
}

export function Group({ name }: { name: string }) {
  const [resetting, setResetting] = useState(false);
  const [forgetting, setForgetting] = useState(false);
  const lacking = useLacking("admin");
  const polled = usePoll((signal) => described(name, signal), 2000, [name]);
  const elsewhere = polled.data?.coordinator;
  const busy = elsewhere
    ? "another broker coordinates the group"
    : polled.data?.members.length
      ? "the group has members: stop them first"
      : undefined;
  return (
    <section class="screen">
      <div class="screen-head">
        <p class="crumbs">
          <a href={to("groups")}>Consumer groups</a>
        </p>
        <h1 class="name">{name}</h1>
        {polled.data && <Badge kind={polled.data.state === "Stable" ? "good" : "plain"}>{polled.data.state}</Badge>}
        <span class="grow" />
        <Button onPress={() => setResetting(true)} lacking={lacking ?? busy}>
          Reset offsets
        </Button>
        <Button kind="danger" onPress={() => setForgetting(true)} lacking={lacking ?? busy}>
          Delete group
        </Button>
      </div>
      <Settled of={polled} rows={8}>
        {(group) => (
          <>
            {elsewhere && (
              <p class="banner">
                The broker at {elsewhere} coordinates this group and knows its members, but does not respond.
              </p>
            )}
            <div class="figures">
              <Figure label="Lag" value={count(group.lag)} note="records not read yet" />
              <Figure label="Members" value={elsewhere ? "–" : count(group.members.length)} note={group.kind} />
              <Figure
                label="Partitions"
                value={count(group.offsets.length)}
                note={`${count(group.offsets.filter((row) => row.offset !== null).length)} with an offset`}
              />
            </div>
            <LagChart name={name} />
            <h2>Offsets</h2>
            {group.offsets.length ? (
              <Table
                label="Offsets"
                rows={group.offsets}
                keyOf={(row) => `${row.topic}:${row.partition}`}
                columns={[
                  { name: "Topic", cell: (row) => <a href={to("topics", row.topic)}>{row.topic}</a>, wide: true },
                  { name: "Partition", cell: (row) => row.partition, number: true },
                  { name: "Lag", cell: (row) => count(row.lag), number: true },
                  { name: "Offset", cell: (row) => (row.offset === null ? "–" : count(row.offset)), number: true },
                  { name: "Start", cell: (row) => count(row.start), number: true },
                  { name: "End", cell: (row) => count(row.end), number: true },
                ]}
              />
            ) : (
              <Empty title="The group has not committed any offsets" />
            )}
            <h2>Members</h2>
            {group.members.length ? (
              <Table
                label="Members"
                rows={group.members}
                keyOf={(row) => row.member_id}
                columns={[
                  { name: "Member", cell: (row) => <span class="mono">{row.member_id}</span>, wide: true },
                  { name: "Client", cell: (row) => row.client_id },
                  { name: "Host", cell: (row) => row.client_host },
                  { name: "Instance", cell: (row) => row.instance_id ?? "–" },
                  {
                    name: "Reads",
                    cell: (row) =>
                      row.assignment.map((one) => `${one.topic} (${one.partitions.join(", ")})`).join("; ") || "nothing yet",
                  },
                ]}
              />
            ) : (
              <p class="muted">{elsewhere ? "Only the other broker knows them." : "The group has no members."}</p>
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
        )}
      </Settled>
      {forgetting && (
        <Dialog
          title={`Delete ${name}?`}
          action="Delete group"
          danger
          onClose={() => setForgetting(false)}
          onSubmit={async () => {
            await del(path`/v0/groups/${name}`);
            go("groups");
          }}
        >
          <p>This deletes the offsets of the group. A consumer that joins again starts as its own settings say.</p>
        </Dialog>
      )}
    </section>
  );
}

function LagChart({ name }: { name: string }) {
  const polled = usePoll((signal) => get<GroupHistory>(path`/v0/groups/${name}/history`, signal), 5000, [name]);
  const samples = polled.data?.samples ?? [];
  if (!samples.length) return null;
  return (
    <div class="charts">
      <Chart
        title="Lag in the last hour"
        whole
        times={samples.map((sample) => sample.at_ms / 1000)}
        show={short}
        lines={[{ label: "records", colour: "--chart-1", values: samples.map((sample) => sample.lag) }]}
      />
    </div>
  );
}

interface Move {
  topic: string;
  partition: number;
  before: number | null;
  after: number;
}

type Where = "earliest" | "latest" | "offset" | "time";

export function Reset({ group, onClose }: { group: GroupDescription; onClose: () => void }) {
  const topics = [...new Set(group.offsets.map((row) => row.topic))];
  const [topic, setTopic] = useState(topics[0] ?? "");
  const [where, setWhere] = useState<Where>("earliest");
  const [place, setPlace] = useState("");
  const [moves, setMoves] = useState<Move[]>();
  const [problem, setProblem] = useState("");
  const body = {
    topic,
    to: where,
    offset: where === "offset" && place !== "" ? Number(place) : undefined,
    timestamp_ms: where === "time" && place !== "" ? new Date(place).getTime() : undefined,
  };
  const reset = (dry_run: boolean) => post<{ moved: Move[] }>(path`/v0/groups/${group.group}/reset`, { ...body, dry_run });
  const changed = <T,>(set: (value: T) => void) => (value: T) => {
    set(value);
    setMoves(undefined); // the preview is out of date
  };
  const tryOut = async () => {
    setProblem("");
    try {
      setMoves((await reset(true)).moved);
    } catch (failure) {
      setProblem(explained(failure));
    }
  };
  return (
    <Dialog
      title="Reset offsets"
      action="Reset"
      danger
      lacking={moves ? undefined : "preview the reset first"}
      onClose={onClose}
      onSubmit={async () => {
        await reset(false);
        notify("The offsets are reset.");
      }}
    >
      <TextField label="Topic" value={topic} onChange={changed(setTopic)} autofocus />
      <div class="field-row">
        <Select
          label="To"
          value={where}
          onChange={changed<Where>(setWhere)}
          options={[
            ["earliest", "The first record"],
            ["latest", "The end"],
            ["offset", "An offset"],
            ["time", "A time"],
          ]}
        />
        {where === "offset" && <TextField label="Offset" type="number" value={place} onChange={changed(setPlace)} />}
        {where === "time" && <TextField label="Time" type="datetime-local" value={place} onChange={changed(setPlace)} />}
      </div>
      <Button onPress={tryOut}>Preview</Button>
      <p class="problem" role="alert">
        {problem}
      </p>
      {moves && (
        <Table
          label="Changes"
          rows={moves}
          keyOf={(row) => row.partition}
          columns={[
            { name: "Partition", cell: (row) => row.partition, number: true },
            { name: "From", cell: (row) => (row.before === null ? "–" : count(row.before)), number: true },
            { name: "To", cell: (row) => count(row.after), number: true },
          ]}
        />
      )}
    </Dialog>
  );
}
