import { useState } from "preact/hooks";
import { get, patch, path, put } from "../api";
import { bytes, duration } from "../format";
import { Badge, Button, Check, Search } from "../parts/controls";
import { notify } from "../parts/notices";
import { Settled } from "../parts/states";
import { usePoll } from "../poll";
import { useLacking } from "../rights";
import type { SettingDescription, SettingDescriptions, TopicConfigResponse } from "../types";
import type { TopicFacts } from "./topic";

type Field = keyof TopicConfigResponse;

// What has no setting of Kafka's kind: fields of the HTTP config.
const FIELDS: [Field, string, string][] = [
  ["priority", "", "Who waits first while the broker is saturated: -1000 to 1000; empty: by use."],
  ["idempotency_window_ms", "120000", "How long idempotency keys are remembered."],
];
const QUEUE_FIELDS: [Field, string, string][] = [
  ["lease_ms", "30000", "How long a job is leased, unless the claim says otherwise."],
  ["claim_jitter_ms", "0", "Claims within this time share the jobs."],
  ["max_deliveries", "0", "Deliveries before a job is a dead letter; 0: never."],
  ["dead_letter", "", "The topic for dead letters."],
  ["leases_durable", "false", "Leases survive a restart."],
];
const CHOICES: Record<string, string[]> = {
  "mainstem.discard": ["old", "reject"],
  "mainstem.durability": ["ephemeral", "memory", "disk", "fsync"],
  "mainstem.validate.records": ["header", "full"],
  "mainstem.key.schema.validation": ["none", "id", "full"],
  "mainstem.value.schema.validation": ["none", "id", "full"],
  "message.timestamp.type": ["CreateTime", "LogAppendTime"],
};

interface Row {
  name: string;
  help: string;
  fallback: string; // the default
  stored: string;
  inert: boolean;
  choices?: string[];
}

export function Config({ name, facts, reload }: { name: string; facts: TopicFacts | undefined; reload: () => Promise<void> }) {
  const described = usePoll((signal) => get<SettingDescriptions>("/v0/topic-settings", signal), 0, []);
  return (
    <Settled of={described} rows={10}>
      {({ settings }) => facts && <Settings name={name} facts={facts} rows={rowsOf(facts, settings)} reload={reload} />}
    </Settled>
  );
}

function Settings(props: { name: string; facts: TopicFacts; rows: Row[]; reload: () => Promise<void> }) {
  const [changed, setChanged] = useState<Partial<Record<string, string>>>({});
  const [search, setSearch] = useState("");
  const [all, setAll] = useState(false);
  const lacking = useLacking("admin");
  const wanted = search.toLowerCase();
  const shown = props.rows.filter(
    (row) => (all || !row.inert) && (row.name.includes(wanted) || row.help.toLowerCase().includes(wanted)),
  );
  const edits = props.rows.filter((row) => (changed[row.name] ?? row.stored) !== row.stored);
  const save = async () => {
    const { config } = props.facts.state;
    const of = (row: Row) => changed[row.name] ?? "";
    const fields = edits.filter((row) => !row.name.includes("."));
    const settings = edits.filter((row) => row.name.includes("."));
    if (fields.length) {
      const next: Record<string, unknown> = { ...config };
      for (const row of fields) next[row.name] = parsed(config[row.name as Field], of(row), row.name);
      delete next["durable"];
      await put(path`/v0/topics/${props.name}`, next);
    }
    if (settings.length) {
      const body = { settings: Object.fromEntries(settings.map((row) => [row.name, of(row)])) };
      await patch(path`/v0/topics/${props.name}/settings`, body);
    }
    notify("Saved.");
    await props.reload();
    // What was typed meanwhile stays.
    setChanged((now) => Object.fromEntries(Object.entries(now).filter(([name, value]) => changed[name] !== value)));
  };
  return (
    <>
      <div class="toolbar sticky">
        <Button kind="main" onPress={save} lacking={lacking ?? (edits.length ? undefined : "nothing changed")}>
          Save
        </Button>
        <Button onPress={() => setChanged({})} lacking={edits.length ? undefined : "nothing changed"}>
          Undo
        </Button>
        <span class="muted">{edits.length ? `${edits.length} changed` : ""}</span>
        <span class="grow" />
        <Check label="Show those without effect" value={all} onChange={setAll} />
        <Search label="Search settings" value={search} onChange={setSearch} />
      </div>
      <div class="settings">
        {shown.map((row) => (
          <Setting
            key={row.name}
            row={row}
            value={changed[row.name] ?? row.stored}
            onChange={(value) => setChanged((now) => ({ ...now, [row.name]: value }))}
          />
        ))}
      </div>
    </>
  );
}

function Setting({ row, value, onChange }: { row: Row; value: string; onChange: (value: string) => void }) {
  const id = `setting-${row.name}`;
  const meaning = readable(row.name, value);
  return (
    <div class={`setting${value !== row.stored ? " changed" : ""}`}>
      <label for={id}>
        <span>
          <code>{row.name}</code> {row.stored !== row.fallback && <Badge kind="good">set</Badge>}
        </span>
        <span class="muted">{row.help}</span>
      </label>
      <div class="setting-value">
        {row.choices ? (
          <select id={id} value={value} onChange={(event) => onChange(event.currentTarget.value)}>
            {row.choices.map((choice) => (
              <option key={choice}>{choice}</option>
            ))}
          </select>
        ) : (
          <input id={id} value={value} spellcheck={false} onInput={(event) => onChange(event.currentTarget.value)} />
        )}
        <span class="muted">
          {meaning && `${meaning}; `}
          default {row.fallback === "" ? "none" : (readable(row.name, row.fallback) ?? row.fallback)}
        </span>
      </div>
    </div>
  );
}

/** One list: the settings, and the fields that have none. */
function rowsOf(facts: TopicFacts, settings: SettingDescription[]): Row[] {
  const { config } = facts.state;
  const fields = config.type === "queue" ? [...FIELDS, ...QUEUE_FIELDS] : FIELDS;
  const own = fields.map(([name, fallback, help]) => ({
    name,
    help,
    fallback,
    stored: config[name] === null ? "" : String(config[name]),
    inert: false,
    choices: typeof config[name] === "boolean" ? ["true", "false"] : undefined,
  }));
  const rest = settings
    .filter((one) => !one.fixed)
    .map((one) => ({
      name: one.name,
      help: one.help,
      fallback: one.default,
      stored: facts.settings.settings[one.name] ?? one.default,
      inert: one.inert,
      choices: one.kind === "boolean" ? ["true", "false"] : CHOICES[one.name],
    }));
  return [...rest, ...own].sort((one, other) => Number(one.inert) - Number(other.inert));
}

/** A duration or a size in words, by the unit at the end of the name. */
function readable(name: string, value: string): string | undefined {
  const number = Number(value);
  if (value.trim() === "" || !Number.isFinite(number) || number < 0) return undefined;
  if (number > Number.MAX_SAFE_INTEGER) return "no limit";
  if (/[._]ms$/.test(name)) return number === 0 ? undefined : duration(number);
  if (/[._]bytes$/.test(name)) return number === 0 ? undefined : bytes(number);
  return undefined;
}

function parsed(before: TopicConfigResponse[Field], text: string, name: string): unknown {
  if (typeof before === "boolean") return text === "true";
  if (typeof before === "number" || name === "priority") {
    if (text === "" && name === "priority") return null;
    const value = Number(text);
    if (text.trim() === "" || !Number.isInteger(value)) throw new Error(`${name} must be a whole number, not “${text}”`);
    return value;
  }
  return text === "" && name === "dead_letter" ? null : text;
}
