// A query over topics, with its result as a table and as bars.

import { useEffect, useRef, useState } from "preact/hooks";
import { explained, get, post, query } from "../api";
import { ago, bytes, count, duration, plural } from "../format";
import { Button, Check } from "../parts/controls";
import { Command, Empty } from "../parts/states";
import { Table } from "../parts/table";
import { usePoll } from "../poll";
import { useLacking } from "../rights";
import { usePlace } from "../route";
import type { SqlColumn, SqlResult, TopicSummaries } from "../types";

const ROWS = 1000;
const BARS = 50;
const TABLES = 12; // topics to start from

type Row = { at: number; values: unknown[] };

interface Done {
  result: SqlResult;
  ms: number;
}

export function Sql() {
  const asked = usePlace().values.get("query");
  const [text, setText] = useState(asked ?? "");
  const [done, setDone] = useState<Done>();
  const [problem, setProblem] = useState("");
  const running = useRef<AbortController | undefined>(undefined);
  const [busy, setBusy] = useState(false);
  const lacking = useLacking("read") ?? (text.trim() ? undefined : "Write a query first");
  const run = async (query = text) => {
    running.current?.abort();
    const own = (running.current = new AbortController());
    setBusy(true);
    setProblem("");
    history.replaceState(null, "", `#/sql?query=${encodeURIComponent(query)}`);
    const started = performance.now();
    try {
      const result = await post<SqlResult>("/v0/sql", { query, limit: ROWS }, own.signal);
      setDone({ result, ms: performance.now() - started });
    } catch (failure) {
      if (!own.signal.aborted) setProblem(explained(failure));
    } finally {
      if (running.current === own) setBusy(false);
    }
  };
  useEffect(() => {
    if (asked) void run();
    return () => running.current?.abort();
  }, []);
  const onKey = (event: KeyboardEvent) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey) || lacking) return;
    event.preventDefault();
    void run();
  };
  return (
    <section class="screen">
      <div class="screen-head">
        <h1>SQL</h1>
        <span class="muted">Current to the last record</span>
      </div>
      <textarea
        aria-label="Query"
        rows={5}
        spellcheck={false}
        placeholder="SELECT _offset, _value FROM orders ORDER BY _offset DESC LIMIT 100"
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
        onKeyDown={onKey}
      />
      <div class="toolbar">
        {busy ? (
          <Button onPress={() => running.current?.abort()}>Cancel</Button>
        ) : (
          <Button kind="main" onPress={() => void run()} lacking={lacking} title="Ctrl+Enter">
            Run
          </Button>
        )}
        <span class="muted" role="status">
          {busy ? "Running…" : done && !problem && told(done)}
        </span>
      </div>
      {problem && (
        <pre class="problem" role="alert">
          {problem}
        </pre>
      )}
      {done ? (
        <Result key={done.ms} result={done.result} />
      ) : (
        !problem && (
          <>
            <Empty title="Every topic is a table" commands={['mainstem sql "SELECT count(*) FROM orders"']}>
              It has the columns _partition_id, _offset, _timestamp, _key, _value and _headers, and those that its table declares. The same
              from the command line:
            </Empty>
            <Tables
              onOpen={(query) => {
                setText(query);
                void run(query);
              }}
            />
          </>
        )
      )}
      {done && text && <Command text={`mainstem sql '${text.replaceAll("'", "'\\''")}'`} />}
    </section>
  );
}

/** The topics written to last; opening one asks for its newest records. */
function Tables({ onOpen }: { onOpen: (query: string) => void }) {
  const polled = usePoll(
    (signal) => get<TopicSummaries>("/v0/overview/topics" + query({ sort: "written", descending: true, limit: TABLES }), signal),
    5000,
    [],
  );
  if (!polled.data?.topics.length) return null;
  return (
    <>
      <h2>Newest records of a topic</h2>
      <Table
        label="Topics"
        rows={polled.data.topics}
        keyOf={(row) => row.topic}
        onOpen={(row) => onOpen(newest(row.topic))}
        columns={[
          { name: "Topic", cell: (row) => <span class="name">{row.topic}</span>, wide: true },
          { name: "Records", cell: (row) => count(row.records), number: true },
          { name: "Size", cell: (row) => bytes(row.bytes), number: true },
          { name: "Last write", cell: (row) => ago(row.last_write_ms), number: true },
        ]}
      />
    </>
  );
}

const newest = (topic: string) =>
  `SELECT _partition_id, _offset, _timestamp, decode(_key) AS key, decode(_value) AS value FROM "${topic.replaceAll('"', '""')}" ORDER BY _timestamp DESC LIMIT 100`;

function told({ result, ms }: Done): string {
  const more = result.truncated ? ", and there are more" : "";
  return `${plural(result.rows.length, "row")}${more}, in ${duration(ms)}`;
}

function Result({ result }: { result: SqlResult }) {
  const [bars, setBars] = useState(false);
  const rows = result.rows.map((values, at) => ({ at, values }));
  const figures = result.columns.findIndex((column) => isNumber(column));
  const drawable = figures >= 0 && result.columns.length > 1 && rows.length > 1 && rows.length <= BARS;
  return (
    <>
      {drawable && <Check label={`Draw ${result.columns[figures]!.name} as bars`} value={bars} onChange={setBars} />}
      {bars && drawable ? (
        <Bars rows={rows} columns={result.columns} figures={figures} />
      ) : (
        <Table
          label="Result"
          rows={rows}
          keyOf={(row) => row.at}
          columns={result.columns.map((column, at) => ({
            name: column.name,
            number: isNumber(column),
            cell: (row: Row) => <Value value={row.values[at]} />,
          }))}
        />
      )}
    </>
  );
}

function isNumber(column: SqlColumn): boolean {
  return /^(u?int|float|double|decimal|halffloat)/.test(column.type);
}

function Value({ value }: { value: unknown }) {
  if (value === null) return <span class="muted">null</span>;
  if (typeof value === "number") return <>{Number.isInteger(value) ? count(value) : String(value)}</>;
  return <span class="mono">{typeof value === "string" ? value : JSON.stringify(value)}</span>;
}

/** One bar for each row, with the other columns as its label. */
function Bars({ rows, columns, figures }: { rows: Row[]; columns: SqlColumn[]; figures: number }) {
  const most = Math.max(...rows.map((row) => Math.abs(Number(row.values[figures])) || 0), Number.MIN_VALUE);
  const label = columns.findIndex((_, at) => at !== figures);
  return (
    <dl class="bars" aria-label={`${columns[figures]!.name} by ${columns[label]!.name}`}>
      {rows.map((row) => (
        <div key={row.at}>
          <dt>
            <Value value={row.values[label]} />
          </dt>
          <dd>
            <span class="bar" style={{ width: `${(70 * Math.abs(Number(row.values[figures]) || 0)) / most}%` }} />
            <Value value={row.values[figures]} />
          </dd>
        </div>
      ))}
    </dl>
  );
}
