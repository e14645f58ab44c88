import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { ApiError, explained, get, path, query } from "../api";
import { asLines, download, readable, summary } from "../content";
import { clock, count, duration, plural, time } from "../format";
import { follow } from "../live";
import { Badge, Button, Select } from "../parts/controls";
import { copy, Empty, Failed, Loading } from "../parts/states";
import { moveByArrows, useRowFocus } from "../parts/table";
import { remember, usePlace } from "../route";
import type { PlacedMessage } from "../content";
import type { MessageList } from "../types";
import { MessageDetail } from "./message_detail";

const PAGE = 100;
const KEPT_LIVE = 500; // maximum number of rows on the screen
const POLL_MS = 1000; // for several partitions: browsers allow too few connections to watch each

type Start = "newest" | "oldest" | "offset" | "time" | "live";

interface Sought {
  key: string;
  value: string;
  header: string;
  json: string;
  until: string; // a local time
}

const FILTERS = [
  ["key", "key contains", undefined],
  ["value", "value contains", undefined],
  ["header", "header contains", "name=content, or part of it"],
  ["json", "$.path = value", "A condition on JSON values: $.customer.city = Rome, $.total >= 10, or $.error"],
] as const;
const STARTS = ["newest", "oldest", "offset", "time", "live"];

interface Shown {
  messages: PlacedMessage[]; // newest first, unless reading starts at the oldest
  ends: Map<number, MessageList>; // next position by partition
  scanned: number;
  tookMs: number;
  lost: { partition: number; start: number; end: number; reason: string }[];
}

export function Messages({ name, partitions }: { name: string; partitions: number }) {
  const { values } = usePlace();
  const [start, setStart] = useState<Start>(() => startOf(values.get("start")));
  const [place, setPlace] = useState(values.get("at") ?? "");
  const [partition, setPartition] = useState(values.get("partition") ?? "all");
  const [typed, setTyped] = useState<Sought>(() => soughtIn(values));
  const [paused, setPaused] = useState(false);
  const [filters, setFilters] = useState(() => isFiltered(typed)); // shown on a phone; a wide window always shows them
  const sought = useDelayed(typed, 300);
  const [shown, setShown] = useState<Shown>();
  const [problem, setProblem] = useState("");
  const [connected, setConnected] = useState(true);
  const [selected, setSelected] = useState<PlacedMessage>();
  const [round, setRound] = useState(0);
  const [loading, setLoading] = useState(true);
  const latest = useRef<Shown | undefined>(undefined);
  latest.current = shown;

  const numbers = useMemo(
    () => (partition === "all" ? Array.from({ length: partitions }, (_, at) => at) : [Number(partition)]),
    [partition, partitions],
  );
  const forwards = start === "oldest" || start === "offset" || start === "time";
  const wanted = useDelayed(place, 400, place === "");
  useEffect(
    () =>
      remember({
        start: start === "newest" ? "" : start,
        at: wanted,
        partition: partition === "all" ? "" : partition,
        ...sought,
      }),
    [start, wanted, partition, sought],
  );

  useEffect(() => {
    const ending = new AbortController();
    const { signal } = ending;
    setProblem("");
    const load = async () => {
      if (paused && latest.current) return; // what is on the screen stays
      const pages = await Promise.all(numbers.map((number) => firstPage(name, number, start, wanted, sought, signal)));
      if (signal.aborted) return;
      const next = gathered(pages, forwards);
      latest.current = next;
      setShown(next);
      setLoading(false);
      // The detail goes with its row.
      setSelected((one) => one && next.messages.find((message) => keyOf(message) === keyOf(one)));
    };
    const run = async () => {
      try {
        await load();
        if (start === "live" && !paused) await stayLive();
      } catch (failure) {
        if (!signal.aborted) setProblem(failure instanceof ApiError && failure.status === 0 ? "" : explained(failure));
        if (!signal.aborted && failure instanceof ApiError && failure.status === 0) {
          setConnected(false);
          setTimeout(() => !signal.aborted && setRound((before) => before + 1), POLL_MS);
        }
      }
    };
    /** Whether there is more to read. */
    const catchUp = async (): Promise<boolean> => {
      const before = latest.current;
      if (!before) return false;
      const fresh = await Promise.all(
        numbers.map((number) => newerPage(name, number, before.ends.get(number)?.next_from ?? 0, sought, signal)),
      );
      if (signal.aborted) return false;
      const next = withNewer(before, fresh, isFiltered(sought));
      latest.current = next;
      setShown(next);
      return [...next.ends.values()].some((end) => end.next_from < end.end);
    };
    const stayLive = async () => {
      const one = numbers[0];
      if (numbers.length === 1 && one !== undefined) {
        let running = false;
        let again = false;
        const grown = async () => {
          // Appends during a request are included in the next one.
          again = true;
          if (running) return;
          running = true;
          while (again && !signal.aborted) {
            again = false;
            again = (await catchUp().catch(() => false)) || again; // after a failure the next event retries
          }
          running = false;
        };
        await follow(name, one, signal, () => void grown(), setConnected);
        return;
      }
      while (!signal.aborted) {
        let more = false;
        try {
          more = await catchUp();
          setConnected(true);
        } catch {
          setConnected(false);
        }
        if (!more) await new Promise((done) => setTimeout(done, POLL_MS));
      }
    };
    setConnected(true);
    setLoading(!paused);
    void run().finally(() => !signal.aborted && setLoading(false));
    return () => ending.abort();
  }, [name, start, wanted, numbers.join(), sought, round, paused]);

  // Another filter, place or partition begins without a detail.
  useEffect(() => setSelected(undefined), [start, wanted, numbers.join(), sought]);

  const more = async () => {
    const before = shown;
    if (!before || loading) return;
    const pages = await Promise.all(
      numbers.map((number) => {
        const end = before.ends.get(number);
        return forwards
          ? newerPage(name, number, end?.next_from ?? 0, sought)
          : get<MessageList>(address(name, number, { before: end?.next_before ?? 0 }, sought));
      }),
    );
    if (latest.current === before) setShown(withMore(before, pages, forwards)); // else another list is shown by now
  };
  const hasMore =
    shown &&
    [...shown.ends.values()].some((end) => (forwards ? end.next_from < end.end : end.next_before > end.start));

  return (
    <div class="messages">
      <div class={filters ? "toolbar" : "toolbar brief"}>
        <Select
          bare
          label="Start at"
          value={start}
          onChange={(next) => {
            setStart(next);
            setPaused(false);
            setPlace("");
            setShown(undefined);
          }}
          options={[
            ["newest", "Newest"],
            ["oldest", "Oldest"],
            ["offset", "From offset"],
            ["time", "From time"],
            ["live", "Live"],
          ]}
        />
        {start === "offset" && (
          <input type="number" min="0" aria-label="Offset" placeholder="offset" value={place} onInput={(event) => setPlace(event.currentTarget.value)} />
        )}
        {start === "time" && (
          <input type="datetime-local" step="1" aria-label="Time" value={place} onInput={(event) => setPlace(event.currentTarget.value)} />
        )}
        {partitions > 1 && (
          <Select
            bare
            label="Partition"
            value={partition}
            onChange={setPartition}
            options={[["all", "All partitions"], ...Array.from({ length: partitions }, (_, at) => [String(at), `Partition ${at}`] as const)]}
          />
        )}
        <span class="phone">
          <Button onPress={() => setFilters(!filters)} pressed={filters}>
            Filters
          </Button>
        </span>
        {FILTERS.map(([part, hint, title]) => (
          <input
            key={part}
            type="search"
            class="filter"
            data-search={part === "value" ? true : undefined}
            aria-label={`Filter by ${part === "json" ? "JSON path" : part}`}
            title={title}
            placeholder={hint}
            value={typed[part]}
            spellcheck={false}
            onInput={(event) => setTyped({ ...typed, [part]: event.currentTarget.value })}
          />
        ))}
        {start !== "live" && (
          <label class="inline">
            before{" "}
            <input
              type="datetime-local"
              step="1"
              aria-label="Before"
              value={typed.until}
              onInput={(event) => setTyped({ ...typed, until: event.currentTarget.value })}
            />
          </label>
        )}
        <span class="grow" />
        {start === "live" &&
          (paused ? (
            <Badge>paused</Badge>
          ) : (
            <Badge kind={connected ? "good" : "warn"}>{connected ? "● live" : "reconnecting"}</Badge>
          ))}
        {start === "live" && <Button onPress={() => setPaused(!paused)}>{paused ? "Resume" : "Pause"}</Button>}
        <Button onPress={() => void copy(location.href)} title="Copy a link to this search">
          Copy link
        </Button>
        <Button onPress={() => setRound(round + 1)}>Reload</Button>
        <Button
          onPress={() => download(`${name}.jsonl`, asLines(shown?.messages ?? []), "application/jsonl")}
          lacking={shown?.messages.length ? undefined : "there is nothing to download"}
        >
          Download
        </Button>
      </div>
      {problem && <Failed message={problem} onRetry={() => setRound(round + 1)} />}
      {!problem && !shown && <Loading rows={10} />}
      {!problem && shown && (
        <div class={selected ? "split" : "split alone"} aria-busy={loading}>
          <div class="split-list">
            {shown.lost.map((loss) => (
              <p key={`${loss.partition}-${loss.start}`} class="banner">
                Partition {loss.partition}: offsets {count(loss.start)} to {count(loss.end - 1)} are lost ({loss.reason}).
              </p>
            ))}
            {shown.messages.length ? (
              <Rows shown={shown} several={partitions > 1} selected={selected} onSelect={setSelected} />
            ) : (
              <Nothing name={name} live={start === "live"} filtered={isFiltered(sought)} more={!!hasMore} />
            )}
            <p class="list-foot muted">
              {plural(shown.messages.length, "message")} shown, {count(shown.scanned)} scanned in {duration(shown.tookMs)}
              {!selected && shown.messages.length > 0 && ". Select a message to see its details: arrow keys move, Enter opens, Esc closes."}
              {hasMore && start !== "live" && (
                <Button small onPress={more}>
                  {forwards ? "Newer" : "Older"}
                </Button>
              )}
            </p>
          </div>
          {selected && <MessageDetail name={name} message={selected} onClose={() => setSelected(undefined)} />}
        </div>
      )}
    </div>
  );
}

function Rows(props: {
  shown: Shown;
  several: boolean;
  selected: PlacedMessage | undefined;
  onSelect: (message: PlacedMessage) => void;
}) {
  const chosen = props.selected && keyOf(props.selected);
  const body = useRowFocus();
  return (
    <div class="table-frame scrolls">
      <table class="table fixed" aria-label="Messages">
        <thead>
          <tr>
            {props.several && <th class="number narrow">P</th>}
            <th class="number offset">Offset</th>
            <th class="when">Time</th>
            <th class="key">Key</th>
            <th>Value</th>
          </tr>
        </thead>
        <tbody ref={body} onKeyDown={moveByArrows}>
          {props.shown.messages.map((message) => (
            <tr
              key={keyOf(message)}
              tabIndex={0}
              class="openable"
              aria-selected={chosen === keyOf(message)}
              onClick={() => props.onSelect(message)}
              onFocus={() => chosen !== undefined && props.onSelect(message)}
              onKeyDown={(event) => event.key === "Enter" && props.onSelect(message)}
            >
              {props.several && <td class="number narrow">{message.partition}</td>}
              <td class="number offset">{message.offset}</td>
              <td class="when" title={time(message.timestamp_ms)}>
                {clock(message.timestamp_ms)}
              </td>
              <td class="key mono">{message.key ? summary(readable(message.key, message.key_decoded), 80) : <span class="muted">–</span>}</td>
              <td class="mono">{summary(readable(message.value, message.value_decoded))}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Nothing(props: { name: string; live: boolean; filtered: boolean; more: boolean }) {
  if (props.filtered)
    return <Empty title="No matches">{props.more ? "The search did not cover all messages. Continue with the button below." : "No message matches the filter."}</Empty>;
  return (
    <Empty
      title={props.live ? "Waiting for the next message" : "No messages here"}
      commands={[
        `curl ${location.origin}/v0/topics/${props.name} -H 'Content-Type: application/json' -d '{"records":[{"data":{"hello":"world"},"tag":"k1"}]}'`,
      ]}
    >
      Write one, and it shows up.
    </Empty>
  );
}

const isFiltered = (sought: Sought) => Object.values(sought).some(Boolean);

const startOf = (given: string | null): Start => (given && STARTS.includes(given) ? (given as Start) : "newest");

function soughtIn(values: URLSearchParams): Sought {
  const of = (name: keyof Sought) => values.get(name) ?? "";
  return { key: of("key"), value: of("value"), header: of("header"), json: of("json"), until: of("until") };
}

const keyOf = (message: PlacedMessage) => `${message.partition}:${message.offset}`;

function address(name: string, partition: number, at: { from?: number; before?: number }, sought: Sought): string {
  const until = sought.until ? new Date(sought.until).getTime() : undefined;
  return path`/v0/topics/${name}/messages` + query({ partition, limit: PAGE, ...at, ...sought, until });
}

async function firstPage(
  name: string,
  partition: number,
  start: Start,
  place: string,
  sought: Sought,
  signal: AbortSignal,
): Promise<MessageList> {
  if (start === "oldest") return get(address(name, partition, { from: 0 }, sought), signal);
  if (start === "offset") return get(address(name, partition, { from: Number(place) || 0 }, sought), signal);
  if (start === "time") {
    const ms = place ? new Date(place).getTime() : 0;
    const found = await get<{ partitions: { offset: number | null; end: number }[] }>(
      path`/v0/topics/${name}/offsets` + query({ at: Math.max(0, ms), partition }),
      signal,
    );
    const one = found.partitions[0];
    return get(address(name, partition, { from: one?.offset ?? one?.end ?? 0 }, sought), signal);
  }
  const page = await get<MessageList>(address(name, partition, {}, sought), signal);
  return { ...page, next_from: page.end };
}

function newerPage(name: string, partition: number, from: number, sought: Sought, signal?: AbortSignal): Promise<MessageList> {
  return get(address(name, partition, { from }, sought), signal);
}

function placed(page: MessageList): PlacedMessage[] {
  return page.messages.map((message) => ({ ...message, partition: page.partition }));
}

function inOrder(messages: PlacedMessage[], forwards: boolean): PlacedMessage[] {
  const sign = forwards ? 1 : -1;
  return messages.sort(
    (one, other) =>
      sign * (one.timestamp_ms - other.timestamp_ms || one.partition - other.partition || one.offset - other.offset),
  );
}

/** Messages of a partition are ordered by offset, not by time. */
function gathered(pages: MessageList[], forwards: boolean): Shown {
  const only = pages.length === 1 ? pages[0] : undefined;
  const messages = only
    ? forwards
      ? placed(only)
      : placed(only).reverse()
    : inOrder(pages.flatMap(placed), forwards);
  return {
    messages,
    ends: new Map(pages.map((page) => [page.partition, page])),
    scanned: pages.reduce((sum, page) => sum + page.performance.records_scanned!, 0),
    tookMs: Math.max(0, ...pages.map((page) => page.performance.server_total_ms)),
    lost: pages.flatMap((page) => page.lost.map((loss) => ({ ...loss, partition: page.partition }))),
  };
}

function withNewer(before: Shown, pages: MessageList[], filtered: boolean): Shown {
  const fresh = gathered(pages, false);
  const ends = new Map(before.ends);
  for (const page of pages) {
    // Skip messages that would leave the screen at once.
    const next_from = filtered ? page.next_from : Math.max(page.next_from, page.end - KEPT_LIVE);
    ends.set(page.partition, { ...page, next_from, next_before: before.ends.get(page.partition)?.next_before ?? page.start });
  }
  const known = new Set(before.messages.map(keyOf));
  const added = fresh.messages.filter((message) => !known.has(keyOf(message)));
  return {
    messages: [...added, ...before.messages].slice(0, KEPT_LIVE),
    ends,
    scanned: before.scanned + fresh.scanned,
    tookMs: fresh.tookMs,
    lost: [...before.lost, ...fresh.lost],
  };
}

function withMore(before: Shown, pages: MessageList[], forwards: boolean): Shown {
  const next = gathered(pages, forwards);
  return {
    ...next,
    messages: [...before.messages, ...next.messages],
    scanned: before.scanned + next.scanned,
    lost: [...before.lost, ...next.lost],
  };
}

/** A debounced value. */
function useDelayed<T>(value: T, ms: number, now = false): T {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    if (Object.is(settled, value)) return;
    const timer = setTimeout(() => setSettled(value), now ? 0 : ms);
    return () => clearTimeout(timer);
  }, [value]);
  return now ? value : settled;
}
