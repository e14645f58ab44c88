import { useState } from "preact/hooks";
import { path, postText, query } from "../api";
import { count, duration } from "../format";
import { Button, Field, Select, TextField } from "../parts/controls";
import { Command } from "../parts/states";
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
  const [format, setFormat] = useState<"json" | "text">("json");
  const [chosen, setPartition] = useState(BY_KEY);
  const [done, setDone] = useState<Written>();
  const partition = chosen === BY_KEY ? undefined : chosen;
  const lacking = useLacking("write");
  const problem = wrong(value, format) ?? (meta ? wrong(meta, "json") : undefined);
  // The value is sent as typed, because parsing would round large numbers.
  const parts = [`"data":${format === "json" ? value : JSON.stringify(value)}`];
  if (key) parts.push(`"tag":${JSON.stringify(key)}`);
  if (meta) parts.push(`"meta":${meta}`);
  const body = `{"records":[{${parts.join()}}]}`;
  const send = async () => {
    const written = await postText<Written>(
      path`/v0/topics/${name}` + query({ partition }),
      body,
    );
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
        text={`curl ${location.origin}${path`/v0/topics/${name}`}${query({ partition })} -H 'Content-Type: application/json' -d '${body.replaceAll("'", "'\\''")}'`}
      />
    </div>
  );
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
