import { useEffect, useState } from "preact/hooks";
import { get, path, postBytes, query } from "../api";
import { bytesOf, download, isJson, shown, type View } from "../content";
import { bytes, count, time } from "../format";
import { Button } from "../parts/controls";
import { notify } from "../parts/notices";
import { copy } from "../parts/states";
import { recordBatch } from "../record_batch";
import { useLacking } from "../rights";
import type { PlacedMessage } from "../content";
import type { MessageList } from "../types";

const ALL_BYTES = 64 * 1024 * 1024;

export function MessageDetail(props: { name: string; message: PlacedMessage | undefined; onClose: () => void }) {
  const { message } = props;
  const [chosen, setChosen] = useState<View>();
  const lacking = useLacking("write");
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (event.key === "Escape" && !document.querySelector("dialog[open]")) props.onClose();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  });
  if (!message)
    return (
      <aside class="detail waiting-detail">
        <p class="muted">Select a message to see its details. Arrow keys move, Enter opens, Esc closes.</p>
      </aside>
    );
  const view = chosen ?? (isJson(message.value) ? "json" : message.value?.text === undefined ? "hex" : "text");
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
          ✕
        </Button>
      </div>
      <dl class="pairs">
        <dt>Time</dt>
        <dd>{time(message.timestamp_ms)}</dd>
        <dt>Sequence number</dt>
        <dd>{count(message.offset + 1)}</dd>
        <dt>Key</dt>
        <dd class="mono">{message.key ? shown(message.key, message.key.text === undefined ? "hex" : "text") : "none"}</dd>
        <dt>Value</dt>
        <dd>{message.value_bytes < 0 ? "null" : bytes(message.value_bytes)}</dd>
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
        <Button small onPress={async () => copy(shown((await whole()).value, view))}>
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
        {shown(message.value, view)}
      </pre>
      {message.value_bytes > shownBytes && (
        <p class="muted">
          The first {bytes(shownBytes)} of {bytes(message.value_bytes)}. Copy and Download take all of it.
        </p>
      )}
    </aside>
  );
}
