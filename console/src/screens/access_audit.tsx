import { useState } from "preact/hooks";
import { get, path, query } from "../api";
import { textOf } from "../content";
import { count, plural, time } from "../format";
import { Badge, Button, Select } from "../parts/controls";
import { Empty, Settled } from "../parts/states";
import { Table } from "../parts/table";
import { usePoll } from "../poll";
import type { Message, MessageList, TopicSummaries } from "../types";

const TOPIC = "__audit";
const PAGE = 100; // entries that the screen shows per step
const REQUEST = 500; // records of one request
const REQUESTS_MAX = 10; // before the user must ask for more

/** A record of the audit log. */
interface Entry {
  offset: number;
  time_ms: number;
  principal: string;
  host: string;
  door: string;
  operation: string;
  resource: string;
  name: string;
  outcome: "done" | "denied" | "failed";
  count?: number;
  dropped?: number;
}

interface Found {
  entries: Entry[];
  scanned: number;
  more: boolean;
}

const KINDS = { done: "good", denied: "bad", failed: "warn" } as const;

export function AuditLog() {
  const [principal, setPrincipal] = useState("");
  const [operation, setOperation] = useState("");
  const [outcome, setOutcome] = useState("");
  const [wanted, setWanted] = useState(PAGE);
  const polled = usePoll(
    (signal) => search({ principal, operation, outcome }, wanted, signal),
    5000,
    [principal, operation, outcome, wanted],
    true,
  );
  const filtered = !!(principal || operation || outcome);
  return (
    <>
      <div class="toolbar">
        {(
          [
            ["principal", principal, setPrincipal],
            ["operation", operation, setOperation],
          ] as const
        ).map(([part, value, set]) => (
          <input
            key={part}
            type="search"
            class="filter"
            data-search={part === "principal" ? true : undefined}
            aria-label={`Filter by ${part}`}
            placeholder={`${part} contains`}
            value={value}
            spellcheck={false}
            onInput={(event) => set(event.currentTarget.value)}
          />
        ))}
        <Select
          bare
          label="Filter by outcome"
          value={outcome}
          onChange={setOutcome}
          options={[
            ["", "All outcomes"],
            ["done", "Done"],
            ["denied", "Denied"],
            ["failed", "Failed"],
          ]}
        />
        <span class="grow" />
        <span class="muted">
          {polled.data && `${plural(polled.data.entries.length, "entry", "entries")} of ${count(polled.data.scanned)} read`}
        </span>
      </div>
      <Settled of={polled} rows={10}>
        {({ entries, more }) => (
          <>
            {entries.length ? (
              <Table
                label="Audit log"
                rows={entries}
                keyOf={(row) => row.offset}
                columns={[
                  { name: "Time", cell: (row) => time(row.time_ms) },
                  { name: "Principal", cell: (row) => <span class="name">{row.principal}</span> },
                  { name: "Outcome", cell: (row) => <Badge kind={KINDS[row.outcome]}>{row.outcome}</Badge> },
                  { name: "Operation", cell: (row) => row.operation },
                  { name: "Resource", cell: (row) => `${row.resource.toLowerCase().replaceAll("_", " ")} ${row.name}`, wide: true },
                  { name: "Door", cell: (row) => row.door },
                  { name: "Host", cell: (row) => row.host },
                  { name: "Times", cell: (row) => count(row.count ?? 1), number: true },
                ]}
              />
            ) : filtered ? (
              <Empty title="No matches">
                {more ? "The search did not cover the whole log. Continue with the button below." : "No entry matches the filter."}
              </Empty>
            ) : (
              <Empty title="The audit log is empty" commands={["mainstem serve --audit on"]}>
                The server records administrative and denied operations while clients must authenticate, or with --audit on.
              </Empty>
            )}
            {more && (
              <p class="list-foot">
                <Button small onPress={() => setWanted(wanted + PAGE)}>
                  Older
                </Button>
              </p>
            )}
          </>
        )}
      </Settled>
    </>
  );
}

/** The newest matches. The server filters one text of the value, the page the rest. */
async function search(
  sought: { principal: string; operation: string; outcome: string },
  wanted: number,
  signal: AbortSignal,
): Promise<Found> {
  const found: Found = { entries: [], scanned: 0, more: false };
  const requests = REQUESTS_MAX * Math.ceil(wanted / PAGE);
  let before: number | undefined;
  for (let step = 0; step < requests; step++) {
    const page = await log(before, sought, signal);
    if (!page) return found;
    found.entries.push(...page.messages.reverse().map(entry).filter((one) => matches(one, sought)));
    found.scanned += page.performance.records_scanned ?? 0;
    found.more = page.next_before > page.start;
    before = page.next_before;
    if (!found.more || found.entries.length >= wanted) break;
  }
  return found;
}

/** One page, or undefined: nothing is recorded yet. */
async function log(
  before: number | undefined,
  sought: { principal: string; operation: string; outcome: string },
  signal: AbortSignal,
): Promise<MessageList | undefined> {
  if (before === undefined && !(await exists(signal))) return undefined;
  const value = sought.outcome ? `"outcome":"${sought.outcome}"` : sought.operation;
  return get<MessageList>(path`/v0/topics/${TOPIC}/messages` + query({ before, limit: REQUEST, key: sought.principal, value }), signal);
}

async function exists(signal: AbortSignal): Promise<boolean> {
  const { topics } = await get<TopicSummaries>("/v0/overview/topics" + query({ search: TOPIC }), signal);
  return topics.some((row) => row.topic === TOPIC);
}

function entry(message: Message): Entry {
  return { ...(JSON.parse(textOf(message.value)) as Omit<Entry, "offset">), offset: message.offset };
}

function matches(one: Entry, sought: { operation: string; outcome: string }): boolean {
  return (
    one.operation.toLowerCase().includes(sought.operation.toLowerCase()) && (!sought.outcome || one.outcome === sought.outcome)
  );
}
