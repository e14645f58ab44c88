import { useState } from "preact/hooks";
import { del, get, put } from "../api";
import { count, plural } from "../format";
import { Button, Select, TextField } from "../parts/controls";
import { Dialog } from "../parts/dialog";
import { notify } from "../parts/notices";
import { Empty, Settled } from "../parts/states";
import { Table } from "../parts/table";
import { usePoll } from "../poll";
import { useLacking } from "../rights";
import type { RateDescription } from "../types";

const KINDS = ["user", "client", "group", "namespace", "topic"] as const;
type Kind = (typeof KINDS)[number];

const LIMITS: [string, string][] = [
  ["producer_byte_rate", "Bytes written a second"],
  ["consumer_byte_rate", "Bytes read a second"],
  ["producer_record_rate", "Records written a second"],
  ["consumer_record_rate", "Records read a second"],
];

export function Rates() {
  const [making, setMaking] = useState(false);
  const [removing, setRemoving] = useState<RateDescription>();
  const admin = useLacking("admin");
  const polled = usePoll((signal) => get<{ rates: RateDescription[] }>("/v0/rates", signal), 3000, []);
  return (
    <>
      <div class="toolbar">
        <span class="muted">{polled.data && plural(polled.data.rates.length, "rate")}</span>
        <span class="grow" />
        <Button kind="main" onPress={() => setMaking(true)} lacking={admin}>
          Set rate
        </Button>
      </div>
      <Settled of={polled} rows={8}>
        {({ rates }) =>
          rates.length === 0 ? (
            <Empty title="No rates are set" commands={["mainstem rate set --group billing --consume-bytes 1000000"]}>
              A rate limits what a user, a client id, a consumer group, a namespace or a topic writes and reads a second.
            </Empty>
          ) : (
            <Table
              label="Rates"
              rows={rates}
              keyOf={named}
              columns={[
                { name: "Of", cell: (row) => <span class="name">{named(row)}</span>, wide: true },
                { name: "Limits", cell: limits },
                { name: "Throttled calls", cell: (row) => count(row.throttled_total), number: true },
                { name: "Throttled ms", cell: (row) => count(row.throttled_ms), number: true },
                {
                  name: "",
                  cell: (row) => (
                    <Button small lacking={admin} onPress={() => setRemoving(row)}>
                      Remove
                    </Button>
                  ),
                },
              ]}
            />
          )
        }
      </Settled>
      {making && (
        <SetRate
          onClose={() => {
            setMaking(false);
            polled.reload();
          }}
        />
      )}
      {removing && (
        <Dialog
          title={`Remove the rate of ${named(removing)}?`}
          action="Remove rate"
          danger
          onClose={() => setRemoving(undefined)}
          onSubmit={async () => {
            const query = new URLSearchParams();
            for (const kind of KINDS) if (removing[kind] !== undefined) query.set(kind, removing[kind]);
            await del(`/v0/rates?${query}`);
            polled.reload();
          }}
        >
          <p>The limits end at once. A default may still apply.</p>
        </Dialog>
      )}
    </>
  );
}

function named(row: RateDescription): string {
  return KINDS.filter((kind) => row[kind] !== undefined)
    .map((kind) => `${kind} ${row[kind] || "(default)"}`)
    .join(", ");
}

function limits(row: RateDescription): string {
  return Object.entries(row.limits)
    .map(([key, value]) => `${key.replaceAll("_", " ")} ${count(value)}`)
    .join(", ");
}

function SetRate({ onClose }: { onClose: () => void }) {
  const [kind, setKind] = useState<Kind>("group");
  const [name, setName] = useState("");
  const [limit, setLimit] = useState("consumer_byte_rate");
  const [value, setValue] = useState("");
  const [burst, setBurst] = useState("");
  const set = async () => {
    const given: Record<string, number> = { [limit]: Number(value) };
    if (burst) given.burst_s = Number(burst);
    await put("/v0/rates", { [kind]: name, limits: given });
    notify("The rate applies from now on.");
  };
  return (
    <Dialog title="Set rate" action="Set" onClose={onClose} onSubmit={set}>
      <div class="field-row">
        <Select
          label="Of"
          value={kind}
          onChange={setKind}
          options={[
            ["group", "consumer group"],
            ["user", "user"],
            ["client", "client id"],
            ["namespace", "namespace"],
            ["topic", "topic"],
          ]}
        />
        <TextField
          label="Name"
          value={name}
          onChange={setName}
          hint={kind === "topic" ? "The rate of this topic alone." : "Empty: the default of those without a rate."}
          autofocus
        />
      </div>
      <Select label="Limit" value={limit} onChange={setLimit} options={LIMITS} />
      <div class="field-row">
        <TextField label="A second" value={value} onChange={setValue} />
        <TextField label="Burst, in seconds" value={burst} onChange={setBurst} placeholder="10" />
      </div>
    </Dialog>
  );
}
