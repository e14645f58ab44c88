import { useState } from "preact/hooks";
import { path, postBytes, postText, query } from "../api";
import { count, duration } from "../format";
import { Button, Field, Select, TextField } from "../parts/controls";
import { Command } from "../parts/states";
import { recordBatch } from "../record_batch";
import { useLacking } from "../rights";
import { to } from "../route";

const BY_KEY = ""; // the server chooses, as Kafka's clients do

interface Written {
  first_seq: number;
  last_seq: number;
  partition?: number;
  performance: { server_total_ms: number };
}

export function Produce({ name, partitions, onDone }: { name: string; partitions: number; onDone: () => void }) {
  const [key, setKey] = useState("");
  const [value, setValue] = useState('{"hello": "world"}');
  const [meta, setMeta] = useState("");
  const [headers, setHeaders] = useState("");
  const [format, setFormat] = useState<"json" | "text">("json");
  const [chosen, setPartition] = useState(BY_KEY);
  const [done, setDone] = useState<Written>();
  const partition = chosen === BY_KEY ? undefined : chosen;
  const lacking = useLacking("write");
  const named = headersOf(headers, meta);
  const problem = wrong(value, format) ?? (meta ? wrong(meta, "json") : undefined) ?? (named ? undefined : "A header is name: value");
  // The value is sent as typed, because parsing would round large numbers.
  const parts = [`"data":${format === "json" ? value : JSON.stringify(value)}`];
  if (key) parts.push(`"tag":${JSON.stringify(key)}`);
  if (meta) parts.push(`"meta":${meta}`);
  const body = `{"records":[{${parts.join()}}]}`;
  const batch = () => {
    const encoded = (text: string) => new TextEncoder().encode(text);
    const content = encoded(format === "json" ? value : JSON.stringify(value));
    return recordBatch({ key: key ? encoded(key) : null, value: content, headers: named ?? [] }, Date.now());
  };
  const send = async () => {
    const written = headers.trim()
      ? await postBytes<Written>(path`/v0/topics/${name}/raw` + query({ partition }), batch())
      : await postText<Written>(path`/v0/topics/${name}` + query({ partition }), body);
    setDone(written);
    onDone();
  };
  return (
    <div class="form">
      <TextField label="Key" value={key} onChange={setKey} placeholder="none" />
      <Field label="Value" hint={problem}>
        {(id) => (
          <textarea id={id} rows={10} spellcheck={false} value={value} onInput={(event) => setValue(event.currentTarget.value)} />
        )}
      </Field>
      <div class="field-row">
        <Select
          label="Value is"
          value={format}
          onChange={setFormat}
          options={[
            ["json", "JSON"],
            ["text", "Text, sent as a JSON string"],
          ]}
        />
        {partitions > 1 && (
          <Select
            label="Partition"
            value={chosen}
            onChange={setPartition}
            options={[
              [BY_KEY, key ? "By key" : "Any"],
              ...Array.from({ length: partitions }, (_, at) => [String(at), String(at)] as const),
            ]}
          />
        )}
      </div>
      <Field label="Headers" hint="One on each line, as name: value">
        {(id) => (
          <textarea id={id} rows={3} spellcheck={false} value={headers} onInput={(event) => setHeaders(event.currentTarget.value)} />
        )}
      </Field>
      <TextField label="Meta header (JSON)" value={meta} onChange={setMeta} placeholder="none" />
      <div class="toolbar">
        <Button kind="main" onPress={send} lacking={lacking ?? problem}>
          Produce
        </Button>
        <span class="muted" role="status">
          {done && (
            <>
              Written as sequence number {count(done.first_seq)}
              {done.partition !== undefined && ` of partition ${done.partition}`} in {duration(done.performance.server_total_ms)}.{" "}
              <a href={to("topics", name, "messages")}>Show it</a>
            </>
          )}
        </span>
      </div>
      <h3>The same from the command line</h3>
      <Command
        text={headers.trim() && named ? produceCommand(name, key, value, chosen, named.map((one) => one.line)) : `curl ${location.origin}${path`/v0/topics/${name}`}${query({ partition })} -H 'Content-Type: application/json' -d '${body.replaceAll("'", "'\\''")}'`}
      />
    </div>
  );
}

function produceCommand(topic: string, key: string, value: string, partition: string, headers: string[]): string {
  const quoted = (text: string) => `'${text.replaceAll("'", "'\\''")}'`;
  const flags = [...(key ? ["--key", quoted(key)] : []), ...(partition ? ["--partition", partition] : [])];
  return ["mainstem produce", quoted(topic), quoted(value), ...flags, ...headers.flatMap((line) => ["-H", quoted(line)])].join(" ");
}

/** The headers in the lines of a text; undefined if one has no name. */
function headersOf(text: string, meta: string): { name: string; value: Uint8Array; line: string }[] | undefined {
  const found = [];
  for (const line of text.split("\n").filter((one) => one.trim())) {
    const at = line.indexOf(":");
    if (at < 1) return undefined;
    const [name, value] = [line.slice(0, at).trim(), line.slice(at + 1).trim()];
    found.push({ name, value: new TextEncoder().encode(value), line: `${name}=${value}` });
  }
  if (meta) found.push({ name: "meta", value: new TextEncoder().encode(meta), line: `meta=${meta}` });
  return found;
}

function wrong(text: string, format: "json" | "text"): string | undefined {
  if (format === "text") return undefined;
  try {
    JSON.parse(text);
    return undefined;
  } catch (failure) {
    return failure instanceof Error ? `No JSON: ${failure.message}` : "No JSON";
  }
}
