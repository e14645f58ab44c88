import { useState } from "preact/hooks";
import { get } from "../api";
import { count, plural } from "../format";
import { Badge, Figure, Names, Search } from "../parts/controls";
import { Sparkline } from "../parts/sparkline";
import { Empty, Settled } from "../parts/states";
import { Table } from "../parts/table";
import { usePoll } from "../poll";
import { go } from "../route";
import type { GroupListing } from "../types";

const SHOWN = 500;

const total = (rows: GroupListing[], of: (row: GroupListing) => number | null) => rows.reduce((sum, row) => sum + (of(row) ?? 0), 0);

export function Groups() {
  const [search, setSearch] = useState("");
  const polled = usePoll((signal) => get<{ groups: GroupListing[] }>("/v0/groups", signal), 3000, []);
  const all = (polled.data?.groups ?? []).filter((row) => row.kind !== "subscription");
  const found = all.filter((row) => row.group.toLowerCase().includes(search.toLowerCase()));
  return (
    <section class="screen">
      <div class="screen-head">
        <h1>Consumer groups</h1>
        <span class="muted">{polled.data && plural(found.length, "group")}</span>
        <span class="grow" />
        <Search label="Search groups" value={search} onChange={setSearch} />
      </div>
      <Settled of={polled} rows={8}>
        {() =>
          all.length === 0 ? (
            <Empty
              title="There are no consumer groups"
              commands={["mainstem consume hello --group my-group", "kcat -b localhost:9092 -G my-group hello"]}
            >
              A group shows up when its first member joins, or when it commits an offset.
            </Empty>
          ) : (
            <>
              <div class="figures">
                <Figure label="Groups" value={count(all.length)} note={`${count(all.filter((row) => row.state === "Stable").length)} stable`} />
                <Figure label="Members" value={count(total(all, (row) => row.members))} note={all.some((row) => row.members === null) ? "of groups that this broker coordinates" : "in all groups"} />
                <Figure label="Lag" value={count(total(all, (row) => row.lag))} note="records not read yet" />
                <Figure label="Behind" value={count(all.filter((row) => row.lag).length)} note="groups with lag" />
              </div>
              <Table
                label="Consumer groups"
                rows={found.slice(0, SHOWN)}
                keyOf={(row) => row.group}
                onOpen={(row) => go("groups", row.group)}
                columns={[
                  { name: "Group", cell: (row) => <span class="name">{row.group}</span>, wide: true },
                  {
                    name: "Lag",
                    cell: (row) => (
                      <>
                        <Sparkline values={row.recent} label="Lag in the last two minutes" />
                        {row.lag === null ? "–" : count(row.lag)}
                      </>
                    ),
                    number: true,
                  },
                  { name: "State", cell: (row) => <Badge kind={row.state === "Stable" ? "good" : "plain"}>{row.state}</Badge> },
                  { name: "Kind", cell: (row) => row.kind },
                  { name: "Members", cell: (row) => (row.members === null ? "–" : count(row.members)), number: true },
                  { name: "Topics", cell: (row) => <Names of={row.topics} /> },
                ]}
              />
              {found.length > SHOWN && <p class="muted">The first {count(SHOWN)}. Search for the others.</p>}
            </>
          )
        }
      </Settled>
    </section>
  );
}
