import { useCallback, useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { get, patch, path, query } from "../api";
import { ago, bytes, count, plural, rate } from "../format";
import { Badge, Button, Check, Search, Select, TextField } from "../parts/controls";
import { Dialog } from "../parts/dialog";
import { notify } from "../parts/notices";
import { Sparkline } from "../parts/sparkline";
import { Empty, Failed, Loading } from "../parts/states";
import { VirtualRows } from "../parts/virtual";
import { usePoll } from "../poll";
import { useLacking } from "../rights";
import { go, to } from "../route";
import type { TopicSummaries, TopicSummary } from "../types";

const EVERY_MS = 2000;
const PAGE = 100;

type Order = "name" | "partitions" | "records" | "bytes" | "written";

interface Seen extends TopicSummary {
  rate: number | null; // records per second: between two polls; before that, what the server sampled last
  seenMs: number;
}

const COLUMNS: { order?: Order; label: string; number?: boolean }[] = [
  { order: "name", label: "Topic" },
  { label: "Kind" },
  { order: "partitions", label: "Partitions", number: true },
  { order: "records", label: "Records", number: true },
  { order: "bytes", label: "Size", number: true },
  { label: "Records/s", number: true },
  { order: "written", label: "Last write", number: true },
];

export function Topics() {
  const [search, setSearch] = useState("");
  const [order, setOrder] = useState<Order>("name");
  const [descending, setDescending] = useState(false);
  const [skip, setSkip] = useState(0);
  const [making, setMaking] = useState(false);
  const lacking = useLacking("admin");
  const rows = useRef(new Map<number, Seen>());
  const rates = useRef(new Map<string, Seen>());
  const asked = query({ search, sort: order, descending });
  const shown = useRef(asked);
  shown.current = asked;
  useLayoutEffect(() => rows.current.clear(), [asked]);

  const polled = usePoll(
    async (signal) => {
      const found = await get<TopicSummaries>(
        "/v0/overview/topics" + query({ search, sort: order, descending, skip, limit: PAGE }),
        signal,
      );
      if (asked !== shown.current) return found; // of another list: its rows are not these
      const now = Date.now();
      found.topics.forEach((row, at) => {
        const seen = withRate(row, rates.current.get(row.topic), now);
        rates.current.set(row.topic, seen);
        rows.current.set(skip + at, seen);
      });
      return found;
    },
    EVERY_MS,
    [asked, skip],
  );
  const [held, setHeld] = useState<{ asked: string; total: number }>();
  useEffect(() => {
    if (polled.data) setHeld({ asked, total: polled.data.total });
  }, [polled.data]);
  const total = held?.total;

  const onSight = useCallback((first: number, last: number) => {
    // The page of visible rows, moved in steps so that a short scroll makes no request.
    setSkip((held) => (first >= held && last <= held + PAGE ? held : Math.max(0, first - (first % 25) - 25)));
  }, []);
  const sortBy = (wanted: Order) => {
    setDescending(wanted === order ? !descending : wanted !== "name");
    setOrder(wanted);
  };

  return (
    <section class="screen tall">
      <div class="screen-head">
        <h1>Topics</h1>
        <span class="muted">{total === undefined ? "" : plural(total, "topic")}</span>
        <span class="grow" />
        <Search label="Search topics" value={search} onChange={setSearch} />
        <Button kind="main" onPress={() => setMaking(true)} lacking={lacking}>
          Create topic
        </Button>
      </div>
      {total === undefined && !polled.error && <Loading rows={12} />}
      {total === undefined && polled.error && <Failed message={polled.error.message} onRetry={polled.reload} />}
      {total === 0 && search === "" && <NoTopics />}
      {total === 0 && search !== "" && <Empty title={`No topic name contains “${search}”`} />}
      {!!total && (
        <VirtualRows<Seen>
          label="Topics"
          of={asked}
          total={total}
          loading={held?.asked !== asked}
          row={(index) => rows.current.get(index)}
          hrefOf={(row) => to("topics", row.topic)}
          onSight={onSight}
          header={COLUMNS.map((column) => (
            <span
              key={column.label}
              role="columnheader"
              class={column.number ? "number" : undefined}
              aria-sort={column.order !== order ? undefined : descending ? "descending" : "ascending"}
            >
              {column.order ? (
                <button type="button" class="sort" onClick={() => sortBy(column.order as Order)}>
                  {column.label}
                  <i aria-hidden="true">{column.order === order ? (descending ? "▾" : "▴") : ""}</i>
                </button>
              ) : (
                column.label
              )}
            </span>
          ))}
          draw={(row) => (
            <>
              <span role="gridcell" class="name">
                <a href={to("topics", row.topic)} tabIndex={-1}>
                  {row.topic}
                </a>
              </span>
              <span role="gridcell">
                {row.type === "queue" ? <Badge>queue</Badge> : <span class="muted">log</span>}{" "}
                {row.table && <Badge kind="good">table</Badge>}{" "}
                {row.durability !== "fsync" && <Badge>{row.durability}</Badge>}
              </span>
              <span role="gridcell" class="number">
                {count(row.partitions)}
              </span>
              <span role="gridcell" class="number">
                {count(row.records)}
              </span>
              <span role="gridcell" class="number">
                {bytes(row.bytes)}
              </span>
              <span role="gridcell" class="number trend">
                <Sparkline values={row.recent} label="Records per second in the last two minutes" />
                {row.rate === null ? "–" : rate(row.rate)}
              </span>
              <span role="gridcell" class="number muted">
                {ago(row.last_write_ms)}
              </span>
            </>
          )}
        />
      )}
      {making && <CreateTopic onClose={() => setMaking(false)} />}
    </section>
  );
}

function withRate(row: TopicSummary, before: Seen | undefined, now: number): Seen {
  const seconds = before ? (now - before.seenMs) / 1000 : 0;
  const grown = before ? row.end - before.end : 0;
  return { ...row, rate: before && seconds > 0.5 && grown >= 0 ? grown / seconds : (before?.rate ?? row.recent.at(-1) ?? null), seenMs: now };
}

function NoTopics() {
  return (
    <Empty
      title="There are no topics yet"
      commands={[
        `curl ${location.origin}/v0/topics/hello -H 'Content-Type: application/json' -d '{"records":[{"data":{"hello":"world"}}]}'`,
        "mainstem topic create hello --partitions 3",
      ]}
    >
      The first write to a topic makes it. Or press Create topic.
    </Empty>
  );
}

function CreateTopic({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState("");
  const [type, setType] = useState<"log" | "queue">("log");
  const [partitions, setPartitions] = useState("1");
  const [durability, setDurability] = useState("fsync");
  const [table, setTable] = useState(false);
  const create = async () => {
    const settings: Record<string, string> = table ? { "mainstem.table": "true" } : {};
    await patch(path`/v0/topics/${name}/settings`, {
      create: true,
      partitions: Number(partitions) || 1,
      config: { type, durability },
      settings,
    });
    notify(`Topic ${name} was created.`);
    go(type === "queue" ? "queues" : "topics", name);
  };
  return (
    <Dialog title="Create topic" action="Create" onClose={onClose} onSubmit={create}>
      <TextField
        label="Name"
        value={name}
        onChange={setName}
        autofocus
        hint="Letters, digits and . _ : -; starts with a letter or digit"
      />
      <div class="field-row">
        <Select
          label="Kind"
          value={type}
          onChange={setType}
          options={[
            ["log", "Log"],
            ["queue", "Queue"],
          ]}
        />
        <TextField label="Partitions" type="number" value={partitions} onChange={setPartitions} />
      </div>
      <Select
        label="Durability"
        value={durability}
        onChange={setDurability}
        options={[
          ["fsync", "fsync: acknowledged once synced to disk"],
          ["disk", "disk: acknowledged once written"],
          ["memory", "memory: no promise before a sync"],
          ["ephemeral", "ephemeral: in memory only"],
        ]}
      />
      {type === "log" && <Check label="Publish as a table (Iceberg)" value={table} onChange={setTable} />}
    </Dialog>
  );
}
