import { useState } from "preact/hooks";
import { del, get, path, post, usesKey } from "../api";
import { plural, time } from "../format";
import { Badge, Button, Check, Search, Select, TextField } from "../parts/controls";
import { Dialog } from "../parts/dialog";
import { notify } from "../parts/notices";
import { showSecret } from "../parts/secret";
import { Empty, Settled } from "../parts/states";
import { Table } from "../parts/table";
import { usePoll } from "../poll";
import { enter, rights, useLacking, type Scope } from "../rights";
import { useStore } from "../store";
import type { KeyBody, KeyCreated, KeyDescription } from "../types";

const SCOPES: readonly Scope[] = ["read", "write", "delete", "admin"];
const DAY_MS = 86_400_000;
const EXPIRIES: [string, string][] = [
  ["0", "never"],
  [String(DAY_MS), "in a day"],
  [String(7 * DAY_MS), "in 7 days"],
  [String(30 * DAY_MS), "in 30 days"],
  [String(90 * DAY_MS), "in 90 days"],
  [String(365 * DAY_MS), "in a year"],
];

export function Keys() {
  const [search, setSearch] = useState("");
  const [creating, setCreating] = useState(false);
  const [rotating, setRotating] = useState<KeyDescription>();
  const [revoking, setRevoking] = useState<KeyDescription>();
  const lacking = useLacking("admin");
  const { authentication } = useStore(rights);
  const polled = usePoll((signal) => get<{ keys: KeyDescription[] }>("/v0/keys", signal), 5000, []);
  const found = (polled.data?.keys ?? []).filter((row) =>
    [row.id, row.principal, row.namespace, ...row.prefixes].some((text) => text.toLowerCase().includes(search.toLowerCase())),
  );
  const first = !authentication && polled.data?.keys.length === 0;
  return (
    <>
      <div class="toolbar">
        <span class="muted">{polled.data && plural(found.length, "key")}</span>
        <span class="grow" />
        <Search label="Search keys" value={search} onChange={setSearch} />
        <Button kind="main" onPress={() => setCreating(true)} lacking={lacking}>
          Create key
        </Button>
      </div>
      <Settled of={polled} rows={8}>
        {({ keys }) =>
          keys.length === 0 ? (
            <Empty title="No keys are stored" commands={[first ? "mainstem key create admin" : "mainstem key create billing --scopes read+write"]}>
              {first
                ? "Every client may do everything. The first key restricts access: from then on, clients must authenticate."
                : "The keys of MAINSTEM_API_KEYS are not listed here."}
            </Empty>
          ) : (
            <Table
              label="API keys"
              rows={found}
              keyOf={(row) => row.id}
              columns={[
                {
                  name: "Principal",
                  cell: (row) => (
                    <>
                      <span class="name">{row.principal}</span> {usesKey(row.id) && <Badge kind="good">this tab</Badge>}
                    </>
                  ),
                  wide: true,
                },
                { name: "Id", cell: (row) => <code>{row.id}</code> },
                { name: "Scopes", cell: (row) => row.scopes.replaceAll("+", ", ") },
                { name: "Topics", cell: (row) => (row.prefixes.length ? row.prefixes.map((one) => `${one}*`).join(", ") : "all") },
                { name: "Namespace", cell: (row) => row.namespace || "–" },
                { name: "Created", cell: (row) => time(row.created_ms).slice(0, 16) },
                { name: "Expires", cell: (row) => <Expiry of={row} /> },
                { name: "Rotated", cell: (row) => time(row.rotated_ms).slice(0, 16) },
                {
                  name: "",
                  cell: (row) => (
                    <span class="segments">
                      <Button small lacking={lacking} onPress={() => setRotating(row)}>
                        Rotate
                      </Button>
                      <Button small kind="danger" lacking={lacking} onPress={() => setRevoking(row)}>
                        Revoke
                      </Button>
                    </span>
                  ),
                },
              ]}
            />
          )
        }
      </Settled>
      {creating && <CreateKey first={first} onClose={() => setCreating(false)} onDone={polled.reload} />}
      {rotating && (
        <Dialog
          title={`Rotate the key of ${rotating.principal}?`}
          action="Rotate key"
          danger
          onClose={() => setRotating(undefined)}
          onSubmit={async () => {
            const ours = usesKey(rotating.id);
            const made = await post<KeyCreated>(path`/v0/keys/${rotating.id}/rotate`);
            await handOver(made, `New secret of ${made.principal}`, ours);
            polled.reload();
          }}
        >
          <p>The key gets a new secret. The old one is invalid at once.</p>
        </Dialog>
      )}
      {revoking && (
        <Dialog
          title={`Revoke the key of ${revoking.principal}?`}
          action="Revoke key"
          danger
          onClose={() => setRevoking(undefined)}
          onSubmit={async () => {
            await del(path`/v0/keys/${revoking.id}`);
            notify(`The key ${revoking.id} is revoked.`);
            polled.reload();
          }}
        >
          <p>
            Clients that use the key <code>{revoking.id}</code> are refused at once. This cannot be undone.
          </p>
          {usesKey(revoking.id) && <p>This tab uses this key: you must sign in with another one.</p>}
        </Dialog>
      )}
    </>
  );
}

function Expiry({ of: key }: { of: KeyDescription }) {
  if (key.expires_ms === null) return <>never</>;
  return key.expires_ms < Date.now() ? <Badge kind="warn">expired</Badge> : <>{time(key.expires_ms).slice(0, 16)}</>;
}

/** Shows a secret; with `use`, this tab signs in with it. */
async function handOver(made: KeyCreated, title: string, use: boolean): Promise<void> {
  showSecret({ title, secret: made.secret, note: use ? "This tab uses this key from now on." : undefined });
  if (use) await enter(made.secret);
}

function CreateKey({ first, onClose, onDone }: { first: boolean; onClose: () => void; onDone: () => void }) {
  const [name, setName] = useState("");
  const [scopes, setScopes] = useState<readonly Scope[]>(first ? SCOPES : ["read"]);
  const [prefixes, setPrefixes] = useState("");
  const [namespace, setNamespace] = useState("");
  const [ttl, setTtl] = useState("0");
  const create = async () => {
    const body: KeyBody = {
      name: name.trim(),
      scopes: scopes.join("+"),
      prefixes: prefixes.split(/[\s,]+/).filter(Boolean),
      namespace: namespace.trim(),
      ttl_ms: Number(ttl),
    };
    const made = await post<KeyCreated>("/v0/keys", body);
    await handOver(made, `Secret of ${made.principal}`, first);
    onDone();
  };
  return (
    <Dialog
      title="Create key"
      action="Create"
      lacking={scopes.length ? undefined : "choose a scope"}
      onClose={onClose}
      onSubmit={create}
    >
      <TextField label="Name" value={name} onChange={setName} autofocus hint="The key acts as the principal User:name. Empty: its id." />
      {first ? (
        <p class="banner">
          This is the first key, so it has all scopes, covers everything and does not expire. From now on every client must
          authenticate. This tab signs in with the new key.
        </p>
      ) : (
        <>
          <fieldset class="choices">
            <legend>Scopes</legend>
            {SCOPES.map((scope) => (
              <Check
                key={scope}
                label={scope}
                value={scopes.includes(scope)}
                onChange={(on) => setScopes(SCOPES.filter((one) => (one === scope ? on : scopes.includes(one))))}
              />
            ))}
          </fieldset>
          <TextField
            label="Topic prefixes"
            value={prefixes}
            onChange={setPrefixes}
            placeholder="orders. billing."
            hint="Separated by spaces or commas. Empty: all topics."
          />
          <div class="field-row">
            <TextField label="Namespace" value={namespace} onChange={setNamespace} hint="Empty: not bound to one." />
            <Select label="Expires" value={ttl} onChange={setTtl} options={EXPIRIES} />
          </div>
        </>
      )}
    </Dialog>
  );
}
