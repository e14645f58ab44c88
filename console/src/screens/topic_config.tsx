import { useState } from "preact/hooks";
import { patch, path, put } from "../api";
import { Button, Search } from "../parts/controls";
import { notify } from "../parts/notices";
import { Loading } from "../parts/states";
import { useLacking } from "../rights";
import type { TopicConfigResponse } from "../types";
import type { TopicFacts } from "./topic";

const ABOUT: Partial<Record<keyof TopicConfigResponse, string>> = {
  ttl_ms: "age at which records expire; 0 = never",
  cap_records: "maximum number of records; 0 = unlimited",
  cap_bytes: "maximum number of bytes; 0 = unlimited",
  discard: "a full topic evicts its oldest records, or rejects new ones",
  durability: "when a write is acknowledged",
  priority: "-1000 to 1000; empty = by use",
  idempotency_window_ms: "how long idempotency keys are remembered",
  lease_ms: "how long a job is leased, unless the claim says otherwise",
  claim_jitter_ms: "claims within this time share the jobs",
  max_deliveries: "deliveries before a job is a dead letter; 0 = never",
  dead_letter: "topic for dead letters",
  leases_durable: "leases survive a restart",
};
const CHOICES: Partial<Record<keyof TopicConfigResponse, string[]>> = {
  discard: ["old", "reject"],
  durability: ["ephemeral", "memory", "disk", "fsync"],
};
const FIXED = new Set<keyof TopicConfigResponse>(["type", "durable"]); // cannot change; derived from durability
const QUEUE_ONLY = new Set<keyof TopicConfigResponse>(["lease_ms", "claim_jitter_ms", "max_deliveries", "dead_letter", "leases_durable"]);

export function Config({ name, facts, reload }: { name: string; facts: TopicFacts | undefined; reload: () => void }) {
  const [changed, setChanged] = useState<Partial<Record<string, string>>>({});
  const [search, setSearch] = useState("");
  const lacking = useLacking("admin");
  if (!facts) return <Loading rows={10} />;
  const config = facts.state.config;
  const own = (Object.keys(config) as (keyof TopicConfigResponse)[]).filter(
    (one) => !FIXED.has(one) && (config.type === "queue" || !QUEUE_ONLY.has(one)),
  );
  const listed = new Set<string>(["mainstem.type", ...own.map((one) => `mainstem.${one.replaceAll("_", ".")}`)]);
  const kafka = Object.entries(facts.settings.settings).filter(
    ([one]) => !listed.has(one) && one.includes(search.toLowerCase()),
  );
  const edits = Object.entries(changed).filter(([one, value]) => value !== stored(facts, one));
  const save = async () => {
    const settings = edits.filter(([one]) => one.includes("."));
    const fields = edits.filter(([one]) => !one.includes("."));
    if (fields.length) {
      const next: Record<string, unknown> = { ...config };
      for (const [one, text] of fields) next[one] = parsed(config[one as keyof TopicConfigResponse], text ?? "", one);
      delete next["durable"];
      await put(path`/v0/topics/${name}`, next);
    }
    if (settings.length) await patch(path`/v0/topics/${name}/settings`, { settings: Object.fromEntries(settings) });
    notify("Saved.");
    setChanged({});
    reload();
  };
  const valueOf = (one: string) => changed[one] ?? stored(facts, one);
  const edit = (one: string) => (value: string) => setChanged({ ...changed, [one]: value });
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
        <Search label="Search settings" value={search} onChange={setSearch} />
      </div>
      <div class="columns">
        <div>
          <h2>Config</h2>
          <div class="settings">
            {own
              .filter((one) => one.includes(search.toLowerCase()))
              .map((one) => (
                <Setting
                  key={one}
                  name={one}
                  about={ABOUT[one]}
                  value={valueOf(one)}
                  changed={valueOf(one) !== stored(facts, one)}
                  choices={CHOICES[one] ?? (typeof config[one] === "boolean" ? ["true", "false"] : undefined)}
                  onChange={edit(one)}
                />
              ))}
          </div>
        </div>
        <div>
          <h2>Further settings</h2>
          <div class="settings">
            {kafka.map(([one]) => (
              <Setting key={one} name={one} value={valueOf(one)} changed={valueOf(one) !== stored(facts, one)} onChange={edit(one)} />
            ))}
          </div>
        </div>
      </div>
    </>
  );
}

function Setting(props: {
  name: string;
  value: string;
  changed: boolean;
  about?: string;
  choices?: string[];
  onChange: (value: string) => void;
}) {
  const id = `setting-${props.name}`;
  return (
    <div class={`setting${props.changed ? " changed" : ""}`}>
      <label for={id}>
        <code>{props.name}</code>
        {props.about && <span class="muted">{props.about}</span>}
      </label>
      {props.choices ? (
        <select id={id} value={props.value} onChange={(event) => props.onChange(event.currentTarget.value)}>
          {props.choices.map((choice) => (
            <option key={choice}>{choice}</option>
          ))}
        </select>
      ) : (
        <input id={id} value={props.value} spellcheck={false} onInput={(event) => props.onChange(event.currentTarget.value)} />
      )}
    </div>
  );
}

function stored(facts: TopicFacts, name: string): string {
  if (name.includes(".")) return facts.settings.settings[name] ?? "";
  const value = facts.state.config[name as keyof TopicConfigResponse];
  return value === null ? "" : String(value);
}

function parsed(before: TopicConfigResponse[keyof TopicConfigResponse], text: string, name: string): unknown {
  if (typeof before === "boolean") return text === "true";
  if (typeof before === "number" || name === "priority") {
    if (text === "" && name === "priority") return null;
    const value = Number(text);
    if (text.trim() === "" || !Number.isInteger(value)) throw new Error(`${name} must be a whole number, not “${text}”`);
    return value;
  }
  return text === "" && name === "dead_letter" ? null : text;
}
