// The data of the charts: differences of the server's counters between two polls.

import type { ServerOverview } from "./types";

export type Metrics = Record<string, number | { value: number; [label: string]: string | number }[]>;

export interface Sample {
  at: number; // seconds since 1970
  appended: number | null; // records a second
  httpRequests: number | null; // a second
  kafkaRequests: number | null;
  httpWriteMs: number | null; // mean of one write
  kafkaWriteMs: number | null;
  kafkaWriteP99Ms: number | null;
}

interface Counted {
  atMs: number;
  uptimeMs: number;
  appended: number;
  httpRequests: number;
  httpWrites: number;
  httpWriteSeconds: number;
  kafkaRequests: number;
  kafkaWrites: number;
  kafkaWriteSeconds: number;
  kafkaWriteBuckets: [number, number][]; // upper bound in seconds, writes up to it
}

const KEPT = 150;
const WRITE = "POST /v0/topics/{topic}";
const PRODUCE = "produce"; // as the metrics name the API

let before: Counted | undefined;
export let samples: Sample[] = [];

export function take(overview: ServerOverview, metrics: Metrics): void {
  const now = counted(overview, metrics);
  // A restarted server counts from 0 again, so this interval is unknown.
  if (before && now.atMs > before.atMs && now.uptimeMs >= before.uptimeMs) {
    samples = [...samples.slice(-KEPT + 1), difference(before, now)];
  }
  before = now;
}

function counted(overview: ServerOverview, metrics: Metrics): Counted {
  const kafka = (part: string) => rows(metrics, `mainstem_kafka_request_seconds_${part}`);
  const produced = (part: string) => kafka(part).filter((row) => row["api"] === PRODUCE);
  const written = (name: string) => rows(metrics, name).filter((row) => row["route"] === WRITE);
  return {
    atMs: overview.now_ms,
    uptimeMs: overview.uptime_ms,
    appended: overview.appended,
    httpRequests: total(rows(metrics, "mainstem_http_requests_total").filter((row) => !isOurs(String(row["route"])))),
    httpWrites: total(written("mainstem_http_requests_total")),
    httpWriteSeconds: total(written("mainstem_http_request_seconds_total")),
    kafkaRequests: total(kafka("count")),
    kafkaWrites: total(produced("count")),
    kafkaWriteSeconds: total(produced("sum")),
    kafkaWriteBuckets: produced("bucket").map((row) => [row["le"] === "+Inf" ? Infinity : Number(row["le"]), row.value]),
  };
}

/** Excludes the requests of this page itself. */
function isOurs(route: string): boolean {
  return /overview|metrics|\/v0\/key|console|^GET \/$/.test(route);
}

function difference(old: Counted, now: Counted): Sample {
  const seconds = (now.atMs - old.atMs) / 1000;
  const perSecond = (pick: (one: Counted) => number) => Math.max(0, pick(now) - pick(old)) / seconds;
  const mean = (spent: (one: Counted) => number, done: (one: Counted) => number) => {
    const finished = done(now) - done(old);
    return finished > 0 ? ((spent(now) - spent(old)) / finished) * 1000 : null;
  };
  return {
    at: now.atMs / 1000,
    appended: perSecond((one) => one.appended),
    httpRequests: perSecond((one) => one.httpRequests),
    kafkaRequests: perSecond((one) => one.kafkaRequests),
    httpWriteMs: mean(
      (one) => one.httpWriteSeconds,
      (one) => one.httpWrites,
    ),
    kafkaWriteMs: mean(
      (one) => one.kafkaWriteSeconds,
      (one) => one.kafkaWrites,
    ),
    kafkaWriteP99Ms: percentile(old.kafkaWriteBuckets, now.kafkaWriteBuckets, 0.99),
  };
}

function percentile(old: [number, number][], now: [number, number][], share: number): number | null {
  const grown = now.map(([bound, value], at) => [bound, value - (old[at]?.[1] ?? 0)] as const);
  const all = grown.at(-1)?.[1] ?? 0;
  if (all <= 0) return null;
  const bound = grown.find(([, value]) => value >= all * share)?.[0] ?? Infinity;
  return Number.isFinite(bound) ? bound * 1000 : null;
}

function rows(metrics: Metrics, name: string): { value: number; [label: string]: string | number }[] {
  const found = metrics[name];
  return Array.isArray(found) ? found : [];
}

function total(found: { value: number }[]): number {
  return found.reduce((sum, row) => sum + row.value, 0);
}
