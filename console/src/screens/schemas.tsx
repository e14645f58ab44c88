import { useState } from "preact/hooks";
import { get, path } from "../api";
import { indented } from "../content";
import { plural } from "../format";
import { Badge, Search, Select } from "../parts/controls";
import { Empty, Settled } from "../parts/states";
import { Table } from "../parts/table";
import { usePoll } from "../poll";
import { go, to } from "../route";
import type { SchemaVersion } from "../types";

const SHOWN = 500;

export function Schemas({ subject }: { subject?: string }) {
  return subject ? <Subject key={subject} name={subject} /> : <Subjects />;
}

function Subjects() {
  const [search, setSearch] = useState("");
  const polled = usePoll((signal) => get<string[]>("/subjects", signal), 5000, []);
  const found = (polled.data ?? []).filter((name) => name.toLowerCase().includes(search.toLowerCase()));
  return (
    <section class="screen">
      <div class="screen-head">
        <h1>Schemas</h1>
        <span class="muted">{polled.data && plural(found.length, "subject")}</span>
        <span class="grow" />
        <Search label="Search subjects" value={search} onChange={setSearch} />
      </div>
      <Settled of={polled} rows={8}>
        {(subjects) =>
          subjects.length === 0 ? (
            <Empty
              title="No schemas yet"
              commands={[
                `curl ${location.origin}/subjects/orders-value/versions -H 'Content-Type: application/json' -d '{"schema": "\\"string\\""}'`,
              ]}
            >
              The registry has Confluent’s REST API at this address. Serialisers register their schemas themselves.
            </Empty>
          ) : (
            <Table
              label="Subjects"
              rows={found.slice(0, SHOWN)}
              keyOf={(name) => name}
              onOpen={(name) => go("schemas", name)}
              columns={[{ name: "Subject", cell: (name) => <span class="name">{name}</span>, wide: true }]}
            />
          )
        }
      </Settled>
    </section>
  );
}

interface SubjectView {
  versions: SchemaVersion[]; // the newest first
  compatibility: string;
}

function Subject({ name }: { name: string }) {
  const [chosen, setChosen] = useState("");
  const polled = usePoll((signal) => load(name, signal), 10_000, [name]);
  return (
    <section class="screen">
      <div class="screen-head">
        <p class="crumbs">
          <a href={to("schemas")}>Schemas</a>
        </p>
        <h1 class="name">{name}</h1>
        {polled.data && <Badge>{polled.data.compatibility.toLowerCase().replaceAll("_", " ")}</Badge>}
      </div>
      <Settled of={polled} rows={8}>
        {({ versions }) => {
          const shown = versions.find((one) => String(one.version) === chosen) ?? versions[0];
          if (!shown) return <Empty title="The subject has no versions" />;
          const before = versions.find((one) => one.version < shown.version);
          return (
            <>
              <div class="toolbar">
                <Select
                  bare
                  label="Version"
                  value={String(shown.version)}
                  onChange={setChosen}
                  options={versions.map((one) => [String(one.version), `Version ${one.version}`] as const)}
                />
                <span class="muted">
                  {shown.schemaType ?? "AVRO"}, id {shown.id}
                  {before && `, changes since version ${before.version} are coloured`}
                </span>
              </div>
              <pre class="diff" tabIndex={0} aria-label="Schema">
                {changes(before ? lines(before) : lines(shown), lines(shown)).map((line, at) => (
                  <span key={at} class={line.kind}>
                    {line.kind === "added" ? "+ " : line.kind === "removed" ? "- " : "  "}
                    {line.text}
                  </span>
                ))}
              </pre>
            </>
          );
        }}
      </Settled>
    </section>
  );
}

async function load(name: string, signal: AbortSignal): Promise<SubjectView> {
  const numbers = await get<number[]>(path`/subjects/${name}/versions`, signal);
  const [versions, config] = await Promise.all([
    Promise.all(numbers.slice(-20).map((number) => get<SchemaVersion>(path`/subjects/${name}/versions/${number}`, signal))),
    get<{ compatibilityLevel: string }>(path`/config/${name}` + "?defaultToGlobal=true", signal),
  ]);
  return { versions: versions.reverse(), compatibility: config.compatibilityLevel };
}

function lines(version: SchemaVersion): string[] {
  try {
    return indented(version.schema).split("\n");
  } catch {
    return version.schema.split("\n"); // Protobuf
  }
}

interface Line {
  kind: "same" | "added" | "removed";
  text: string;
}

/** A line diff by the longest common subsequence. */
function changes(before: string[], after: string[]): Line[] {
  const lengths = Array.from({ length: before.length + 1 }, () => new Array<number>(after.length + 1).fill(0));
  for (let i = before.length - 1; i >= 0; i--)
    for (let j = after.length - 1; j >= 0; j--)
      lengths[i]![j] =
        before[i] === after[j] ? lengths[i + 1]![j + 1]! + 1 : Math.max(lengths[i + 1]![j]!, lengths[i]![j + 1]!);
  const found: Line[] = [];
  let [i, j] = [0, 0];
  while (i < before.length || j < after.length) {
    if (i < before.length && j < after.length && before[i] === after[j]) {
      found.push({ kind: "same", text: after[j]! });
      i++;
      j++;
    } else if (j >= after.length || (i < before.length && lengths[i + 1]![j]! >= lengths[i]![j + 1]!)) {
      found.push({ kind: "removed", text: before[i++]! });
    } else found.push({ kind: "added", text: after[j++]! });
  }
  return found;
}
