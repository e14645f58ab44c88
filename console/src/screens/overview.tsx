import { get } from "../api";
import { bytes, count, duration, plural, rate, short } from "../format";
import { Chart } from "../parts/chart";
import { Badge, Figure } from "../parts/controls";
import { Command, Settled } from "../parts/states";
import { Table } from "../parts/table";
import { usePoll } from "../poll";
import { to } from "../route";
import { serverHistory } from "../history";
import { Clients } from "./clients";
import type { Alert, ServerOverview as OverviewAnswer, ServerSample, TierSizes } from "../types";

const EVERY_MS = 2000;

export function Overview() {
  const polled = usePoll(
    async (signal) => {
      const [overview, samples] = await Promise.all([get<OverviewAnswer>("/v0/overview", signal), serverHistory(signal)]);
      return { overview, samples };
    },
    EVERY_MS,
    [],
  );
  return (
    <section class="screen">
      <div class="screen-head">
        <h1>Overview</h1>
        {polled.data && (
          <span class="muted">
            version {polled.data.overview.version}, up {duration(polled.data.overview.uptime_ms)}
          </span>
        )}
      </div>
      <Settled of={polled} rows={8}>
        {({ overview, samples: shown }) => <Content overview={overview} shown={shown} />}
      </Settled>
    </section>
  );
}

function Content({ overview, shown }: { overview: OverviewAnswer; shown: ServerSample[] }) {
  const times = shown.map((sample) => sample.at_ms / 1000);
  const last = shown.at(-1);
  return (
    <>
      {overview.refusal && (
        <div class="banner" role="alert">
          Writes are refused: {overview.refusal}
        </div>
      )}
      <Alerts alerts={overview.alerts} />
      <div class="figures">
        <Figure label="Appended" value={`${rate(last?.appended ?? 0)}/s`} note={`${short(overview.appended)} in total`} />
        <Figure label="Records" value={short(overview.records)} note={bytes(overview.bytes)} />
        <Figure
          label="Topics"
          value={<a href={to("topics")}>{count(overview.topics)}</a>}
          note={plural(overview.partitions, "partition")}
        />
        <Figure label="Commits" value={short(overview.commits)} note="since the log was created" />
        <Figure
          label="Open transactions"
          value={<a href={to("transactions")}>{count(overview.open_transactions)}</a>}
          note={plural(overview.routers, "router")}
        />
        <Figure
          label="Lake"
          value={<a href={to("lake")}>{overview.lake_drivers ? plural(overview.lake_drivers, "driver") : "not running"}</a>}
          note={bytes(overview.tiers.parquet_bytes) + " Parquet"}
        />
      </div>
      {overview.topics === 0 && <FirstSteps doors={overview.doors} />}
      <div class="charts">
        <Chart
          title="Throughput per second"
          times={times}
          show={rate}
          lines={[
            { label: "records", colour: "--chart-1", values: shown.map((sample) => sample.appended) },
            { label: "HTTP requests", colour: "--chart-2", values: shown.map((sample) => sample.http_requests) },
            { label: "Kafka requests", colour: "--chart-3", values: shown.map((sample) => sample.kafka_requests) },
          ]}
        />
        <Chart
          title="Write latency"
          times={times}
          show={(value) => (value === 0 ? "0" : duration(value))}
          lines={[
            { label: "HTTP mean", colour: "--chart-1", values: shown.map((sample) => sample.http_write_ms) },
            { label: "Kafka mean", colour: "--chart-2", values: shown.map((sample) => sample.kafka_write_ms) },
            { label: "Kafka p99 ≤", colour: "--chart-3", values: shown.map((sample) => sample.kafka_write_p99_ms) },
          ]}
        />
      </div>
      <div class="columns">
        <div>
          <h2>Storage by tier</h2>
          <StorageTiers tiers={overview.tiers} disk={overview.disk} />
        </div>
        <div>
          <h2>Doors</h2>
          <Table
            label="Doors"
            rows={Object.entries(overview.doors)}
            keyOf={([name]) => name}
            columns={[
              { name: "Door", cell: ([name]) => name },
              { name: "Listens on", cell: ([, address]) => <code>{address}</code>, wide: true },
            ]}
          />
          <h2>Brokers</h2>
          <Table
            label="Brokers"
            rows={overview.brokers}
            keyOf={(row) => row.broker}
            columns={[
              { name: "Broker", cell: (row) => row.broker, number: true },
              { name: "Node", cell: (row) => row.node, wide: true },
              { name: "Zone", cell: (row) => row.zone || "–" },
              { name: "Epoch", cell: (row) => row.epoch, number: true },
              {
                name: "State",
                cell: (row) => (row.here ? <Badge kind="good">this one</Badge> : <Badge>{`last seen ${row.silent_s.toFixed(1)} s ago`}</Badge>),
              },
            ]}
          />
        </div>
      </div>
      <Clients />
    </>
  );
}

const ALERTS: Record<Alert["kind"], string> = {
  dead_letters: "Dead letters",
  growing_lag: "Growing lag",
  hanging_transaction: "Long transaction",
  table_behind: "Table behind",
  disk: "Disk",
  clock: "Clock",
  missing_records: "Missing records",
};

function Alerts({ alerts }: { alerts: Alert[] }) {
  if (!alerts.length) return null;
  return (
    <div class="alerts">
      <Table
        label="Alerts"
        rows={alerts}
        keyOf={(row) => [row.kind, row.topic, row.group, row.transaction].join()}
        columns={[
          { name: "Alert", cell: (row) => <Badge kind={row.critical ? "bad" : "warn"}>{ALERTS[row.kind]}</Badge> },
          { name: "Where", cell: (row) => <Concerned alert={row} /> },
          { name: "What", cell: (row) => row.text, wide: true },
        ]}
      />
    </div>
  );
}

function Concerned({ alert }: { alert: Alert }) {
  if (alert.topic && alert.kind === "table_behind") return <a href={to("topics", alert.topic, "table")}>{alert.topic}</a>;
  if (alert.topic) return <a href={to("queues", alert.topic)}>{alert.topic}</a>;
  if (alert.group) return <a href={to("groups", alert.group)}>{alert.group}</a>;
  if (alert.transaction) return <a href={to("transactions")}>{alert.transaction}</a>;
  return <>this server</>;
}

function StorageTiers({ tiers, disk }: { tiers: TierSizes; disk: OverviewAnswer["disk"] }) {
  const used = disk && Math.round(100 - (100 * disk.free_bytes) / Math.max(1, disk.total_bytes));
  const rows: [string, string, string][] = [
    ["Memory", bytes(tiers.memory_bytes), `newest records, up to ${bytes(tiers.memory_bytes_max)}`],
    ["Log", bytes(tiers.wal_bytes), plural(tiers.wal_objects, "file")],
    [
      "Parquet",
      bytes(tiers.parquet_bytes),
      `${plural(tiers.parquet_files, "file")}, ${plural(tiers.parquet_records, "record")}`,
    ],
    ["Garbage", plural(tiers.garbage_files, "file"), "replaced, deleted soon"],
  ];
  if (disk) rows.push(["Disk", bytes(disk.free_bytes), `free of ${bytes(disk.total_bytes)}`]);
  return (
    <>
      <Table
        label="Storage by tier"
        rows={rows}
        keyOf={([name]) => name}
        columns={[
          { name: "Tier", cell: ([name]) => name },
          { name: "Size", cell: ([, size]) => size, number: true },
          { name: "", cell: ([, , note]) => <span class="muted">{note}</span>, wide: true },
        ]}
      />
      {used !== null && (
        <div
          class="meter"
          role="meter"
          aria-label="Disk in use"
          aria-valuemin={0}
          aria-valuemax={100}
          aria-valuenow={used}
          title={`${used} % of the disk is in use`}
        >
          <span style={{ width: `${used}%` }} />
        </div>
      )}
    </>
  );
}

function FirstSteps({ doors }: { doors: Record<string, string> }) {
  return (
    <div class="card">
      <h2>No topics yet. Write the first record:</h2>
      <Command
        text={`curl ${location.origin}/v0/topics/hello -H 'Content-Type: application/json' -d '{"records":[{"data":{"hello":"world"}}]}'`}
      />
      {doors["kafka"] && <Command text={`echo 'hello from kafka' | kcat -P -b ${doors["kafka"]} -t hello`} />}
      <p class="muted">The first write creates the topic, and it appears here at once.</p>
    </div>
  );
}
