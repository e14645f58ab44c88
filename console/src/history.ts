// The data of the charts: samples that the server keeps for an hour, so that a reload does not empty them.

import { get, query } from "./api";
import type { ServerHistory, ServerSample } from "./types";

const KEPT = 720;

let samples: ServerSample[] = [];

/** All samples, of which only the new ones are requested. */
export async function serverHistory(signal: AbortSignal): Promise<ServerSample[]> {
  const last = samples.at(-1)?.at_ms;
  const found = await get<ServerHistory>("/v0/overview/history" + query({ after: last }), signal);
  const newest = samples.at(-1)?.at_ms ?? 0; // another request may have been faster
  const fresh = found.samples.filter((sample) => sample.at_ms > newest);
  if (fresh.length) samples = [...samples, ...fresh].slice(-KEPT);
  return samples;
}
