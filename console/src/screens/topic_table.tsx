import { useState } from "preact/hooks";
import { get, path, put, query } from "../api";
import { isJson, summary, textOf } from "../content";
import { bytes, count, plural, time } from "../format";
import { Badge, Button, Figure } from "../parts/controls";
import { Dialog } from "../parts/dialog";
import { notify } from "../parts/notices";
import { Command, Empty, Settled } from "../parts/states";
import { Table } from "../parts/table";
import { usePoll } from "../poll";
import { useLacking } from "../rights";
import type { PlacedMessage } from "../content";
import type { MessageList, StorageMap, TableStatus } from "../types";

const PREVIEW = 20;
const SNAPSHOTS = 20;

interface Snapshot {
  "sequence-number"?: number;
  "timestamp-ms": number;
  summary?: Record<string, string>;
}

interface View {
  status: TableStatus;
  storage: StorageMap;
  snapshots: Snapshot[];
  rows: PlacedMessage[];
}

export function TableView({ name }: { name: string }) {
  const lacking = useLacking("admin");
  const polled = usePoll((signal) => load(name, signal), 5000, [name]);
  const turn = async (enabled: boolean) => {
    await put(path`/v0/topics/${name}/table`, { enabled });
    notify(enabled ? "The topic is a table now. The lake fills it." : "The topic is not a table any more. Its records stay.");
    polled.reload();
  };
  return (
    <Settled of={polled} rows={8}>
      {(view) =>
        view.status.enabled ? (
          <Enabled name={name} view={view} lacking={lacking} turnOff={() => turn(false)} />
        ) : (
          <Empty title="This topic is not a table">
            <p>As a table, you can query its records with SQL from Spark, Trino, DuckDB or PyIceberg, at {location.origin}/iceberg.</p>
            <Button kind="main" lacking={lacking} onPress={() => turn(true)}>
              Publish as a table
            </Button>
          </Empty>
        )
      }
    </Settled>
  );
}

async function load(name: string, signal: AbortSignal): Promise<View> {
  const [status, storage] = await Promise.all([
    get<TableStatus>(path`/v0/topics/${name}/table`, signal),
    get<StorageMap>(path`/v0/topics/${name}/storage`, signal),
  ]);
  const [namespace, ...rest] = status.table.split(".");
  let snapshots: Snapshot[] = [];
  if (status.table && namespace) {
    const table = await get<{ metadata: { snapshots?: Snapshot[] } }>(
      path`/iceberg/v1/namespaces/${namespace}/tables/${rest.join(".")}`,
      signal,
    );
    snapshots = [...(table.metadata.snapshots ?? [])].reverse().slice(0, SNAPSHOTS);
  }
  // Published rows come from the files of the table.
  const filled = status.partitions.filter((one) => one.published_to > 0);
  const pages = await Promise.all(
    filled.slice(0, 4).map((one) =>
      get<MessageList>(
        path`/v0/topics/${name}/messages` + query({ partition: one.partition, before: one.published_to, limit: PREVIEW }),
        signal,
      ),
    ),
  );
  const rows = pages
    .flatMap((page) => page.messages.map((message) => ({ ...message, partition: page.partition })))
    .sort((one, other) => other.timestamp_ms - one.timestamp_ms)
    .slice(0, PREVIEW);
  return { status, storage, snapshots, rows };
}

function Enabled(props: { name: string; view: View; lacking?: string; turnOff: () => Promise<void> }) {
  const { status, storage, snapshots, rows } = props.view;
  const columns = status.columns.slice(0, 8);
  const [stopping, setStopping] = useState(false);
  return (
    <>
      <div class="toolbar">
        {status.table ? <code>{status.table}</code> : <Badge kind="warn">{status.problem ? "no table" : "being created"}</Badge>}
        <span class="grow" />
        <Button onPress={() => setStopping(true)} lacking={props.lacking}>
          Stop showing as a table
        </Button>
      </div>
      {stopping && (
        <Dialog
          title={`Stop showing ${props.name} as a table?`}
          action="Drop table"
          danger
          onClose={() => setStopping(false)}
          onSubmit={props.turnOff}
        >
          <p>This drops the table {status.table && <code>{status.table}</code>} and its snapshots. The records of the topic stay.</p>
        </Dialog>
      )}
      {status.problem && (
        <p class="problem" role="alert">
          {status.table ? "The table lags: " : "The table does not exist: "}
          {status.problem}
        </p>
      )}
      <div class="figures">
        <Figure label="Lag" value={count(status.lag_records)} note="records not in the table yet" />
        <Figure label="Rows" value={count(status.records)} note={bytes(status.file_bytes)} />
        <Figure label="Files" value={count(status.files)} note={plural(storage.parts_total, "part")} />
        <Figure label="Snapshots" value={count(status.snapshots)} />
      </div>
      <div class="columns">
        <div>
          <h2>Frontier</h2>
          <Table
            label="Frontier"
            rows={status.partitions}
            keyOf={(row) => row.partition}
            columns={[
              { name: "Partition", cell: (row) => row.partition, number: true },
              { name: "End", cell: (row) => count(row.end), number: true },
              { name: "Parquet to", cell: (row) => count(row.materialised_to), number: true },
              { name: "Published to", cell: (row) => count(row.published_to), number: true },
              { name: "Lag", cell: (row) => count(row.lag_records), number: true },
            ]}
          />
        </div>
        <div>
          <h2>Snapshots</h2>
          {snapshots.length ? (
            <Table
              label="Snapshots"
              rows={snapshots}
              keyOf={(row) => row["timestamp-ms"]}
              columns={[
                { name: "Made", cell: (row) => time(row["timestamp-ms"]) },
                { name: "What", cell: (row) => row.summary?.["operation"] ?? "–" },
                { name: "Rows added", cell: (row) => count(Number(row.summary?.["added-records"] ?? 0)), number: true },
                { name: "Total rows", cell: (row) => count(Number(row.summary?.["total-records"] ?? 0)), number: true },
              ]}
            />
          ) : (
            <Empty title="No snapshot yet" commands={["mainstem serve --lake", "mainstem lake run"]}>
              The lake’s driver publishes them. One of these starts it:
            </Empty>
          )}
        </div>
      </div>
      {storage.parts.length > 0 && (
        <>
          <h2>Parts and generations</h2>
          <Table
            label="Parts"
            rows={storage.parts.slice(0, 50)}
            keyOf={(row) => `${row.partition}:${row.base}:${row.generation}`}
            columns={[
              { name: "Partition", cell: (row) => row.partition, number: true },
              { name: "Offsets", cell: (row) => `${count(row.base)} – ${count(row.end - 1)}`, number: true },
              { name: "Generation", cell: (row) => row.generation, number: true },
              { name: "Records", cell: (row) => count(row.records), number: true },
              { name: "Size", cell: (row) => bytes(row.bytes), number: true },
              { name: "Files", cell: (row) => <span class="mono">{row.files.join(", ")}</span>, wide: true },
            ]}
          />
        </>
      )}
      {rows.length > 0 && (
        <>
          <h2>Newest rows</h2>
          <Command text={`mainstem sql "select * from ${status.table} order by _timestamp desc limit 20"`} />
          <Table
            label="Newest rows"
            rows={rows}
            keyOf={(row) => `${row.partition}:${row.offset}`}
            columns={[
              { name: "_partition_id", cell: (row: PlacedMessage) => row.partition, number: true },
              { name: "_offset", cell: (row: PlacedMessage) => row.offset, number: true },
              { name: "_timestamp", cell: (row: PlacedMessage) => time(row.timestamp_ms) },
              { name: "_key", cell: (row: PlacedMessage) => <span class="mono">{row.key ? summary(row.key, 40) : "null"}</span> },
              // Columns without a path come from a schema of the registry: the preview does not decode those values.
              ...columns.flatMap(({ name, path }) =>
                path ? [{ name, cell: (row: PlacedMessage) => <span class="mono">{fieldOf(row, path)}</span> }] : [],
              ),
              { name: "_value", cell: (row: PlacedMessage) => <span class="mono">{summary(row.value, 120)}</span>, wide: true },
            ]}
          />
        </>
      )}
    </>
  );
}

/** The field at a path such as $.customer.name. */
function fieldOf(row: PlacedMessage, path: string): string {
  if (!isJson(row.value)) return "null";
  let value: unknown = JSON.parse(textOf(row.value));
  for (const key of path.slice(2).split("."))
    value = value !== null && typeof value === "object" ? (value as Record<string, unknown>)[key] : undefined;
  return value === undefined ? "null" : typeof value === "string" ? value : JSON.stringify(value);
}
