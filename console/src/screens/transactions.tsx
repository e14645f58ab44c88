import { useState } from "preact/hooks";
import { get, path, post } from "../api";
import { count, duration, plural, time } from "../format";
import { Badge, Button, Figure, Search } from "../parts/controls";
import { Dialog } from "../parts/dialog";
import { notify } from "../parts/notices";
import { Empty, Settled } from "../parts/states";
import { Table } from "../parts/table";
import { usePoll } from "../poll";
import { useLacking } from "../rights";
import { to } from "../route";
import type { TransactionDescription } from "../types";

const SHOWN = 300;

export function Transactions() {
  const [search, setSearch] = useState("");
  const [ending, setEnding] = useState<TransactionDescription>();
  const lacking = useLacking("admin");
  const polled = usePoll((signal) => get<{ transactions: TransactionDescription[] }>("/v0/transactions", signal), 2000, []);
  const open = polled.data?.transactions.filter((row) => row.phase === "open").length;
  return (
    <section class="screen">
      <div class="screen-head">
        <h1>Transactions</h1>
        <span class="muted">{open !== undefined && `${open} open`}</span>
        <span class="grow" />
        <Search label="Search transactional ids" value={search} onChange={setSearch} />
      </div>
      <Settled of={polled} rows={8}>
        {({ transactions }) =>
          transactions.length === 0 ? (
            <Empty title="No transactional ids">
              A Kafka producer with a transactional.id shows up here, with what it has open and since when.
            </Empty>
          ) : (
            <>
            <div class="figures">
              <Figure label="Open" value={count(open ?? 0)} note={`of ${plural(transactions.length, "transactional id")}`} />
              <Figure label="Hanging" value={count(transactions.filter((row) => row.hanging).length)} note="they hold back readers of committed records" />
              <Figure label="Longest open" value={open ? duration(Math.max(...transactions.map((row) => row.open_ms))) : "–"} />
            </div>
            <Table
              label="Transactions"
              rows={shown(transactions, search)}
              keyOf={(row) => row.transaction}
              columns={[
                { name: "Transactional id", cell: (row) => <span class="name">{row.transaction}</span>, wide: true },
                {
                  name: "State",
                  cell: (row) =>
                    row.hanging ? (
                      <Badge kind="bad">hanging</Badge>
                    ) : (
                      <Badge kind={row.phase === "open" ? "warn" : "plain"}>{row.phase}</Badge>
                    ),
                },
                { name: "Began", cell: (row) => time(row.started_ms) },
                { name: "Open for", cell: (row) => (row.phase === "open" ? duration(row.open_ms) : "–"), number: true },
                { name: "Timeout", cell: (row) => duration(row.timeout_ms), number: true },
                { name: "Producer", cell: (row) => `${row.producer} / ${row.epoch}`, number: true },
                {
                  name: "Partitions",
                  cell: (row) =>
                    row.partitions.length
                      ? row.partitions.map((one) => (
                          <a key={one.topic} href={to("topics", one.topic)} title={one.partitions.join(", ")}>
                            {one.topic} ({plural(one.partitions.length, "partition")}){" "}
                          </a>
                        ))
                      : "–",
                },
                {
                  name: "",
                  cell: (row) =>
                    row.phase === "open" && (
                      <Button small kind="danger" lacking={lacking} onPress={() => setEnding(row)}>
                        Abort
                      </Button>
                    ),
                },
              ]}
            />
            </>
          )
        }
      </Settled>
      {ending && (
        <Dialog
          title={`Abort the transaction of ${ending.transaction}?`}
          action="Abort"
          danger
          onClose={() => setEnding(undefined)}
          onSubmit={async () => {
            const done = await post<{ aborted: boolean }>(path`/v0/transactions/${ending.transaction}/abort`);
            notify(done.aborted ? "Aborted." : "The transaction had already ended.");
            polled.reload();
          }}
        >
          <p>Its records never become visible. The producer is fenced and must restart.</p>
        </Dialog>
      )}
    </section>
  );
}

/** Open transactions first, the longest-running first. */
function shown(rows: TransactionDescription[], search: string): TransactionDescription[] {
  return rows
    .filter((row) => row.transaction.toLowerCase().includes(search.toLowerCase()))
    .sort((one, other) => other.open_ms - one.open_ms || (other.started_ms ?? 0) - (one.started_ms ?? 0))
    .slice(0, SHOWN);
}
