import { useState } from "preact/hooks";
import { get } from "../api";
import { count, plural } from "../format";
import { Badge, Search } from "../parts/controls";
import { Empty, Settled } from "../parts/states";
import { Table } from "../parts/table";
import { usePoll } from "../poll";
import { go } from "../route";
import type { GroupListing } from "../types";

const SHOWN = 500;

export function Groups() {
  const [search, setSearch] = useState("");
  const polled = usePoll((signal) => get<{ groups: GroupListing[] }>("/v0/groups", signal), 3000, []);
  const found = (polled.data?.groups ?? []).filter((row) => row.kind !== "subscription" && row.group.toLowerCase().includes(search.toLowerCase()));
  return (
    <section class="screen">
      <div class="screen-head">
        <h1>Consumer groups</h1>
        <span class="muted">{polled.data && plural(found.length, "group")}</span>
        <span class="grow" />
        <Search label="Search groups" value={search} onChange={setSearch} />
      </div>
      <Settled of={polled} rows={8}>
        {({ groups }) =>
          groups.length === 0 ? (
            <Empty
              title="There are no consumer groups"
              commands={["mainstem consume hello --group my-group", "kcat -b localhost:9092 -G my-group hello"]}
            >
              A group shows up when its first member joins, or when it commits an offset.
            </Empty>
          ) : (
            <>
              <Table
                label="Consumer groups"
                rows={found.slice(0, SHOWN)}
                keyOf={(row) => row.group}
                onOpen={(row) => go("groups", row.group)}
                columns={[
                  { name: "Group", cell: (row) => <span class="name">{row.group}</span> },
                  { name: "State", cell: (row) => <Badge kind={row.state === "Stable" ? "good" : "plain"}>{row.state}</Badge> },
                  { name: "Kind", cell: (row) => row.kind },
                  { name: "Members", cell: (row) => (row.members === null ? "–" : count(row.members)), number: true },
                  { name: "Lag", cell: (row) => (row.lag === null ? "–" : count(row.lag)), number: true },
                  { name: "Topics", cell: (row) => <span class="muted">{row.topics.join(", ") || "–"}</span>, wide: true },
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
