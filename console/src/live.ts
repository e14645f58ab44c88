// Follows the end of a partition with a watch session of the server, read as an event stream.
//
// Uses fetch, which can send the key in a header; an EventSource would put it into the URL.

import { authorised, path, post, refusal } from "./api";

const RETRY_MS = 1000;

interface Watch {
  wid: string;
}

/** Calls `grown` after every append and every (re)connection, until the signal. */
export async function follow(
  topic: string,
  partition: number,
  signal: AbortSignal,
  grown: () => void,
  connected: (is: boolean) => void,
): Promise<void> {
  while (!signal.aborted) {
    try {
      const asked = { topics: { [topic]: { tail: true, partition } }, include_data: false, include_meta: false };
      const watch = await post<Watch>("/v0/watch", asked, signal);
      const headers = authorised();
      const response = await fetch(path`/v0/watch/${watch.wid}`, { headers, signal });
      if (!response.ok || !response.body) throw await refusal(response, headers);
      connected(true);
      grown();
      await read(response.body, (event) => {
        if (event === "record" || event === "tombstone") grown();
      });
    } catch {
      // The next attempt reports the error; the caller shows that the connection is lost.
    }
    if (signal.aborted) return;
    connected(false);
    await new Promise((done) => setTimeout(done, RETRY_MS));
  }
}

async function read(body: ReadableStream<Uint8Array>, happened: (event: string) => void): Promise<void> {
  const reader = body.pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array>).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    rest += value;
    const frames = rest.split("\n\n");
    rest = frames.pop() ?? "";
    for (const frame of frames) {
      const named = frame.split("\n").find((line) => line.startsWith("event: "));
      if (named) happened(named.slice("event: ".length));
    }
  }
}
