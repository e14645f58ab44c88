import { useState } from "preact/hooks";
import { del, get, path, put } from "../api";
import { count, plural } from "../format";
import { Button, Select, TextField } from "../parts/controls";
import { Dialog } from "../parts/dialog";
import { notify } from "../parts/notices";
import { Empty, Settled } from "../parts/states";
import { Table } from "../parts/table";
import { usePoll } from "../poll";
import { useLacking } from "../rights";
import { to } from "../route";
import type { RouterListing } from "../types";
import { RouterGraph } from "./router_graph";

const GRAPH_MAX = 60;

export function Routers() {
  const [making, setMaking] = useState(false);
  const [removing, setRemoving] = useState<string>();
  const admin = useLacking("admin");
  const deleting = useLacking("delete");
  const polled = usePoll((signal) => get<{ routers: RouterListing[] }>("/v0/routers?page_size=1000", signal), 3000, []);
  return (
    <section class="screen">
      <div class="screen-head">
        <h1>Routers</h1>
        <span class="muted">{polled.data && plural(polled.data.routers.length, "router")}</span>
        <span class="grow" />
        <Button kind="main" onPress={() => setMaking(true)} lacking={admin}>
          Create router
        </Button>
      </div>
      <Settled of={polled} rows={8}>
        {({ routers }) =>
          routers.length === 0 ? (
            <Empty
              title="There are no routers"
              commands={[
                `curl -X PUT ${location.origin}/v0/routers/orders-audit -H 'Content-Type: application/json' -d '{"source":"orders","dest":"audit"}'`,
              ]}
            >
              A router copies what is written to one topic to another.
            </Empty>
          ) : (
            <>
              {routers.length <= GRAPH_MAX ? (
                <RouterGraph routers={routers} />
              ) : (
                <p class="muted">More than {GRAPH_MAX} routers: they are listed below and not drawn.</p>
              )}
              <Table
                label="Routers"
                rows={routers}
                keyOf={(row) => row.router}
                columns={[
                  { name: "Router", cell: (row) => <span class="name">{row.router}</span>, wide: true },
                  { name: "From", cell: (row) => <a href={to("topics", row.source)}>{row.source}</a> },
                  { name: "To", cell: (row) => <a href={to("topics", row.dest)}>{row.dest}</a> },
                  { name: "Guarantee", cell: (row) => row.guarantee.replaceAll("_", " ") },
                  { name: "Copied", cell: (row) => count(row.forwarded_total), number: true },
                  {
                    name: "",
                    cell: (row) => (
                      <Button small lacking={deleting} onPress={() => setRemoving(row.router)}>
                        Delete
                      </Button>
                    ),
                  },
                ]}
              />
            </>
          )
        }
      </Settled>
      {making && (
        <CreateRouter
          onClose={() => {
            setMaking(false);
            polled.reload();
          }}
        />
      )}
      {removing && (
        <Dialog
          title={`Delete ${removing}?`}
          action="Delete router"
          danger
          onClose={() => setRemoving(undefined)}
          onSubmit={async () => {
            await del(path`/v0/routers/${removing}`);
            polled.reload();
          }}
        >
          <p>The router stops copying. Existing copies stay.</p>
        </Dialog>
      )}
    </section>
  );
}

function CreateRouter({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState("");
  const [source, setSource] = useState("");
  const [dest, setDest] = useState("");
  const [filter, setFilter] = useState("");
  const [guarantee, setGuarantee] = useState<"at_least_once" | "exactly_once">("at_least_once");
  const create = async () => {
    await put(path`/v0/routers/${name || `${source}>${dest}`}`, { source, dest, guarantee, filter: filter || undefined });
    notify("The router copies all new records.");
  };
  return (
    <Dialog title="Create router" action="Create" onClose={onClose} onSubmit={create}>
      <div class="field-row">
        <TextField label="From topic" value={source} onChange={setSource} autofocus />
        <TextField label="To topic" value={dest} onChange={setDest} />
      </div>
      <TextField label="Name" value={name} onChange={setName} placeholder={source && dest ? `${source}>${dest}` : ""} />
      <TextField label="Only keys" value={filter} onChange={setFilter} placeholder="all" hint="A * at the end matches any suffix: eu:*" />
      <Select
        label="Guarantee"
        value={guarantee}
        onChange={setGuarantee}
        options={[
          ["at_least_once", "at least once"],
          ["exactly_once", "exactly once"],
        ]}
      />
    </Dialog>
  );
}
