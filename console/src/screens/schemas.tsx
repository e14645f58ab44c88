import { useState } from "preact/hooks";
import { del, explained, get, path, post, put } from "../api";
import { indented } from "../content";
import { plural } from "../format";
import { Button, Field, Search, Select, TextField } from "../parts/controls";
import { Dialog } from "../parts/dialog";
import { notify } from "../parts/notices";
import { Empty, Settled } from "../parts/states";
import { Table } from "../parts/table";
import { usePoll } from "../poll";
import { useLacking } from "../rights";
import { go, to } from "../route";
import type { SchemaVersion } from "../types";

const SHOWN = 500;
const DESCRIBED = 100; // subjects whose latest version is asked for with the list
const LINES_COMPARED = 2000; // a comparison takes the product of both numbers of lines
const LEVELS = ["BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE", "NONE"] as const;
const TYPES = [
  ["AVRO", "Avro"],
  ["JSON", "JSON Schema"],
  ["PROTOBUF", "Protobuf"],
] as const;

type Level = (typeof LEVELS)[number];
type SchemaType = (typeof TYPES)[number][0];

const shownLevel = (level: string) => level.toLowerCase().replaceAll("_", " ");
const typeOf = (version: SchemaVersion) => (version.schemaType ?? "AVRO") as SchemaType;
const shownType = (version: SchemaVersion) => TYPES.find(([type]) => type === typeOf(version))?.[1] ?? typeOf(version);

export function Schemas({ subject }: { subject?: string }) {
  return subject ? <Subject key={subject} name={subject} /> : <Subjects />;
}

function Subjects() {
  const [search, setSearch] = useState("");
  const [registering, setRegistering] = useState(false);
  const lacking = useLacking("write");
  const polled = usePoll((signal) => get<string[]>("/subjects", signal), 5000, []);
  const described = usePoll(
    async (signal) => {
      const latest = await get<SchemaVersion[]>(`/schemas?latestOnly=true&limit=${DESCRIBED}`, signal);
      return new Map(latest.map((one) => [one.subject, one]));
    },
    15_000,
    [polled.data?.length],
    true,
  ).data;
  const latestOf = (name: string, shown: (version: SchemaVersion) => string | number) => {
    const latest = described?.get(name);
    return latest ? shown(latest) : "–";
  };
  const found = (polled.data ?? []).filter((name) => name.toLowerCase().includes(search.toLowerCase()));
  return (
    <section class="screen">
      <div class="screen-head">
        <h1>Schemas</h1>
        <span class="muted">{polled.data && plural(found.length, "subject")}</span>
        <span class="grow" />
        <Search label="Search subjects" value={search} onChange={setSearch} />
        <Button kind="main" lacking={lacking} onPress={() => setRegistering(true)}>
          Register schema
        </Button>
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
              The registry has Confluent’s REST API at this address. Serialisers register their schemas themselves. Or press
              Register schema.
            </Empty>
          ) : (
            <Table
              label="Subjects"
              rows={found.slice(0, SHOWN)}
              keyOf={(name) => name}
              onOpen={(name) => go("schemas", name)}
              columns={[
                { name: "Subject", cell: (name) => <span class="name">{name}</span>, wide: true },
                { name: "Type", cell: (name) => latestOf(name, shownType) },
                { name: "Latest version", cell: (name) => latestOf(name, (latest) => latest.version), number: true },
                { name: "Id", cell: (name) => latestOf(name, (latest) => latest.id), number: true },
                { name: "Lines", cell: (name) => latestOf(name, (latest) => lines(latest).length), number: true },
              ]}
            />
          )
        }
      </Settled>
      {registering && <Register onClose={() => setRegistering(false)} />}
    </section>
  );
}

interface SubjectView {
  versions: SchemaVersion[]; // the newest first
  compatibility: string;
}

function Subject({ name }: { name: string }) {
  const [chosen, setChosen] = useState("");
  const [registering, setRegistering] = useState(false);
  const [removing, setRemoving] = useState(false);
  const polled = usePoll((signal) => load(name, signal), 10_000, [name]);
  const lacksWrite = useLacking("write");
  const lacksDelete = useLacking("delete");
  const lacksAdmin = useLacking("admin");
  const setLevel = async (compatibility: Level) => {
    await put(path`/config/${name}`, { compatibility });
    await polled.reload();
    notify(compatibility === "NONE" ? "Later versions are not checked." : `Later versions must be ${shownLevel(compatibility)} compatible.`);
  };
  return (
    <section class="screen">
      <div class="screen-head">
        <p class="crumbs">
          <a href={to("schemas")}>Schemas</a>
        </p>
        <h1 class="name">{name}</h1>
        <span class="muted">{polled.data && plural(polled.data.versions.length, "version")}</span>
        <span class="grow" />
        <Button
          lacking={lacksWrite}
          onPress={async () => {
            if (!polled.data) await polled.reload(); // the form begins with the latest version
            setRegistering(true);
          }}
        >
          New version
        </Button>
        <Button kind="danger" lacking={lacksDelete} onPress={() => setRemoving(true)}>
          Delete subject
        </Button>
      </div>
      <Settled of={polled} rows={8}>
        {({ versions, compatibility }) => {
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
                  {shownType(shown)}, id {shown.id}
                  {before && `, changes since version ${before.version} are coloured`}
                </span>
                <span class="grow" />
                <Choice label="Compatibility" value={compatibility} lacking={lacksAdmin} onChange={setLevel} />
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
      {registering && (
        <Register
          subject={name}
          latest={polled.data?.versions[0]}
          onClose={() => {
            setRegistering(false);
            setChosen("");
            void polled.reload();
          }}
        />
      )}
      {removing && (
        <Dialog
          title={`Delete ${name}?`}
          action="Delete subject"
          danger
          onClose={() => setRemoving(false)}
          onSubmit={async () => {
            await del(path`/subjects/${name}`);
            go("schemas");
          }}
        >
          <p>No new record can use it. Its schemas keep their ids, so that stored records stay readable.</p>
        </Dialog>
      )}
    </section>
  );
}

function Choice(props: { label: string; value: string; lacking: string | undefined; onChange: (level: Level) => Promise<void> }) {
  if (props.lacking) return <span class="muted">{`${props.label}: ${shownLevel(props.value)}`}</span>;
  return (
    <label class="inline">
      {props.label}{" "}
      <Select
        bare
        label={props.label}
        value={props.value as Level}
        onChange={(level) => void props.onChange(level).catch((failure) => notify(explained(failure), "bad"))}
        options={LEVELS.map((level) => [level, shownLevel(level)] as const)}
      />
    </label>
  );
}

/** A new version of a subject, which begins as its latest one, or a new subject. */
function Register(props: { subject?: string; latest?: SchemaVersion; onClose: () => void }) {
  const [subject, setSubject] = useState(props.subject ?? "");
  const [type, setType] = useState<SchemaType>(props.latest ? typeOf(props.latest) : "AVRO");
  const [schema, setSchema] = useState(props.latest ? lines(props.latest).join("\n") : "");
  const register = async () => {
    const { id } = await post<{ id: number }>(path`/subjects/${subject}/versions`, {
      schema,
      schemaType: type,
      references: props.latest?.references,
    });
    notify(`The schema has the id ${id}.`);
    if (!props.subject) go("schemas", subject);
  };
  return (
    <Dialog title={props.subject ? `New version of ${props.subject}` : "Register schema"} action="Register" onClose={props.onClose} onSubmit={register}>
      {!props.subject && (
        <TextField
          label="Subject"
          value={subject}
          onChange={setSubject}
          autofocus
          hint="orders-value has the schema of the values of the topic orders, orders-key that of its keys"
        />
      )}
      <Select label="Type" value={type} onChange={setType} options={TYPES} />
      <Field label="Schema">
        {(id) => <textarea id={id} rows={14} spellcheck={false} value={schema} onInput={(event) => setSchema(event.currentTarget.value)} />}
      </Field>
    </Dialog>
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
  if (before.length > LINES_COMPARED || after.length > LINES_COMPARED) return after.map((text) => ({ kind: "same", text }));
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
