import { get } from "../api";
import { bytes, count, plural } from "../format";
import { Badge, Figure } from "../parts/controls";
import { Empty, Settled } from "../parts/states";
import { Table } from "../parts/table";
import { usePoll } from "../poll";
import { to } from "../route";
import type { StorageMap, StoredRange } from "../types";

export function Storage() {
  const polled = usePoll((signal) => get<StorageMap>("/v0/storage", signal), 3000, []);
  return (
    <section class="screen">
      <div class="screen-head">
        <h1>Storage map</h1>
        <span class="muted">log files and Parquet generations</span>
      </div>
      <Settled of={polled} rows={10}>
        {(map) => <Content map={map} />}
      </Settled>
    </section>
  );
}

function Content({ map }: { map: StorageMap }) {
  const generations = byGeneration(map);
  return (
    <>
      <div class="figures">
        <Figure label="Generation 0: the log" value={bytes(map.objects.reduce((sum, one) => sum + one.bytes, 0))} note={plural(map.objects_total, "file")} />
        {generations.map((one) => (
          <Figure
            key={one.generation}
            label={`Generation ${one.generation}`}
            value={bytes(one.bytes)}
            note={`${plural(one.parts, "part")}, ${plural(one.records, "record")}`}
          />
        ))}
        <Figure label="Garbage" value={count(map.garbage)} note="files to delete" />
      </div>
      <h2>Log files</h2>
      <p class="muted">
        Each bar is a file; its parts are what it holds of a partition. Grey parts are not read from here any more: the records
        went, or Parquet serves them.
      </p>
      <div class="objects">
        {map.objects.map((one) => (
          <div key={one.number} class="object">
            <div class="object-name">
              <span>
                #{one.number} {!one.sealed && <Badge kind="good">growing</Badge>}
                {one.tier !== "disk" && <Badge>{one.tier === "both" ? "disk and store" : "in the store"}</Badge>}
              </span>
              <span class="muted">
                {bytes(one.bytes)}, {plural(one.commits, "commit")}
              </span>
            </div>
            <Bar ranges={one.ranges} />
            <div class="muted object-more">
              {one.ranges_total > one.ranges.length && `and ${count(one.ranges_total - one.ranges.length)} smaller ranges`}
            </div>
          </div>
        ))}
      </div>
      {map.objects_total > map.objects.length && (
        <p class="muted">
          The newest {count(map.objects.length)} of {count(map.objects_total)} files.
        </p>
      )}
      <h2>Parts</h2>
      {map.parts.length ? (
        <>
          <Table
            label="Parts"
            rows={map.parts}
            keyOf={(row) => `${row.topic}:${row.partition}:${row.base}`}
            columns={[
              { name: "Topic", cell: (row) => <a href={to("topics", row.topic, "table")}>{row.topic}</a> },
              { name: "Partition", cell: (row) => row.partition, number: true },
              { name: "Offsets", cell: (row) => `${count(row.base)} – ${count(row.end - 1)}`, number: true },
              { name: "Generation", cell: (row) => row.generation, number: true },
              { name: "Records", cell: (row) => count(row.records), number: true },
              { name: "Size", cell: (row) => bytes(row.bytes), number: true },
              { name: "Files", cell: (row) => <span class="mono">{row.files.join(", ")}</span>, wide: true },
            ]}
          />
          {map.parts_total > map.parts.length && (
            <p class="muted">
              The first {count(map.parts.length)} of {count(map.parts_total)} parts.
            </p>
          )}
        </>
      ) : (
        <Empty title="No Parquet files yet" commands={["mainstem serve --lake"]}>
          Records of tables and compacted topics move here once the lake runs.
        </Empty>
      )}
    </>
  );
}

function Bar({ ranges }: { ranges: StoredRange[] }) {
  if (!ranges.length) return <div class="object-bar empty-bar">no records of an existing topic</div>;
  const all = ranges.reduce((sum, one) => sum + one.bytes, 0) || 1;
  return (
    <div class="object-bar">
      {ranges.map((one) => {
        const label = `${one.topic} / ${one.partition}, offsets ${count(one.base)} to ${count(one.end - 1)}, ${bytes(one.bytes)}`;
        return (
          <a
            key={`${one.topic}:${one.partition}`}
            class={one.live ? "range" : "range gone"}
            style={{ flexGrow: Math.max(1, Math.round((1000 * one.bytes) / all)) }}
            href={to("topics", one.topic, "partitions")}
            title={label}
            aria-label={label}
          >
            {one.topic}
          </a>
        );
      })}
    </div>
  );
}

function byGeneration(map: StorageMap): { generation: number; bytes: number; parts: number; records: number }[] {
  const found = new Map<number, { generation: number; bytes: number; parts: number; records: number }>();
  for (const part of map.parts) {
    const one = found.get(part.generation) ?? { generation: part.generation, bytes: 0, parts: 0, records: 0 };
    one.bytes += part.bytes;
    one.parts += 1;
    one.records += part.records;
    found.set(part.generation, one);
  }
  return [...found.values()].sort((one, other) => one.generation - other.generation);
}
