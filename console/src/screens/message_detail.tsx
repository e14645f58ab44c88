import { useLayoutEffect, useState } from "preact/hooks";
import { get, path, postBytes, query } from "../api";
import { bytesOf, download, isJson, readable, shown, type View } from "../content";
import { bytes, count, time } from "../format";
import { Button } from "../parts/controls";
import { notify } from "../parts/notices";
import { copy } from "../parts/states";
import { recordBatch } from "../record_batch";
import { useLacking } from "../rights";
import type { PlacedMessage } from "../content";
import type { DecodedContent, MessageList } from "../types";

const SCHEMA_NAMES: Record<string, string> = { AVRO: "Avro", PROTOBUF: "Protobuf", JSON: "JSON Schema" };
const named = (one: DecodedContent) => `${SCHEMA_NAMES[one.schema_type] ?? one.schema_type}, id ${one.schema_id}`;
const ALL_BYTES = 64 * 1024 * 1024;

export function MessageDetail(props: { name: string; message: PlacedMessage; onClose: () => void }) {
  const { message } = props;
  const [chosen, setChosen] = useState<View>();
  const lacking = useLacking("write");
  useLayoutEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (event.key === "Escape" && !document.querySelector("dialog[open]")) props.onClose();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  });
  const decoded = message.value_decoded;
  const view = chosen ?? (decoded || isJson(message.value) ? "json" : message.value?.text === undefined ? "hex" : "text");
  const viewed = (one: PlacedMessage | MessageList["messages"][number]) =>
    shown(view === "json" ? readable(one.value, one.value_decoded) : one.value, view);
  const key = readable(message.key, message.key_decoded);
  const whole = async () => {
    const page = await get<MessageList>(
      path`/v0/topics/${props.name}/messages` +
        query({ partition: message.partition, from: message.offset, limit: 1, value_bytes: ALL_BYTES }),
    );
    return page.messages.find((one) => one.offset === message.offset) ?? message;
  };
  const replay = async () => {
    const all = await whole();
    const headers = all.headers.map((one) => ({ name: one.name, value: one.content && bytesOf(one.content) }));
    const again = recordBatch({ key: all.key && bytesOf(all.key), value: all.value && bytesOf(all.value), headers }, Date.now());
    const place = path`/v0/topics/${props.name}/raw` + query({ partition: message.partition, create: "false" });
    const written = await postBytes<{ first_seq: number }>(place, again);
    notify(`Written again at offset ${count(written.first_seq - 1)}.`);
  };
  const shownBytes = bytesOf(message.value).length;
  return (
    <aside class="detail" aria-label="Message">
      <div class="detail-head">
        <h2>
          Partition {message.partition}, offset {count(message.offset)}
        </h2>
        <Button kind="quiet" small title="Close" onPress={props.onClose}>
          <span aria-hidden="true">✕</span>
        </Button>
      </div>
      <dl class="pairs">
        <dt>Time</dt>
        <dd>{time(message.timestamp_ms)}</dd>
        <dt>Sequence number</dt>
        <dd>{count(message.offset + 1)}</dd>
        <dt>Key</dt>
        <dd class="mono">{key ? shown(key, key.text === undefined ? "hex" : "text") : "none"}</dd>
        <dt>Value</dt>
        <dd>{message.value_bytes < 0 ? "null" : bytes(message.value_bytes)}</dd>
        {(decoded ?? message.key_decoded) && (
          <>
            <dt>Schema</dt>
            <dd>
              {[decoded && `value: ${named(decoded)}`, message.key_decoded && `key: ${named(message.key_decoded)}`]
                .filter(Boolean)
                .join(", ")}
            </dd>
          </>
        )}
      </dl>
      {message.headers.length > 0 && (
        <>
          <h3>Headers</h3>
          <dl class="pairs mono">
            {message.headers.map((header, at) => (
              <>
                <dt key={`n${at}`}>{header.name}</dt>
                <dd key={`c${at}`}>{shown(header.content, header.content?.text === undefined ? "hex" : "text")}</dd>
              </>
            ))}
          </dl>
        </>
      )}
      <div class="toolbar">
        <div class="segments" role="group" aria-label="View">
          {(["json", "text", "hex"] as const).map((one) => (
            <Button key={one} small pressed={view === one} onPress={() => setChosen(one)}>
              {one === "json" ? "JSON" : one === "text" ? "Text" : "Hex"}
            </Button>
          ))}
        </div>
        <span class="grow" />
        <Button small onPress={async () => copy(viewed(await whole()))}>
          Copy
        </Button>
        <Button small title="Append the same key, value and headers again" lacking={lacking} onPress={replay}>
          Replay
        </Button>
        <Button
          small
          onPress={async () => {
            const all = await whole();
            const end = isJson(all.value) ? "json" : all.value?.text === undefined ? "bin" : "txt";
            const content = bytesOf(all.value);
            download(`${props.name}-${message.partition}-${message.offset}.${end}`, content as BlobPart, "application/octet-stream");
          }}
        >
          Download
        </Button>
      </div>
      <pre class={view === "hex" ? "value hex" : "value"} tabIndex={0}>
        {viewed(message)}
      </pre>
      {view === "json" && decoded && decoded.json_bytes > bytesOf({ text: decoded.json }).length && (
        <p class="muted">The decoded value is cut. Copy takes all of it.</p>
      )}
      {message.value_bytes > shownBytes && (
        <p class="muted">
          The first {bytes(shownBytes)} of {bytes(message.value_bytes)}. Copy and Download take all of it.
        </p>
      )}
    </aside>
  );
}
