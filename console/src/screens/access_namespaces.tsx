import { useState } from "preact/hooks";
import { del, get, path, put } from "../api";
import { bytes, count, duration, plural } from "../format";
import { Button, Check, Search, Select, TextField } from "../parts/controls";
import { Dialog } from "../parts/dialog";
import { notify } from "../parts/notices";
import { Empty, Settled } from "../parts/states";
import { Table } from "../parts/table";
import { usePoll } from "../poll";
import { useLacking } from "../rights";
import type { NamespaceDescriptionBody, NamespaceReport } from "../types";

export function Namespaces() {
  const [search, setSearch] = useState("");
  const [creating, setCreating] = useState(false);
  const [changing, setChanging] = useState<NamespaceReport>();
  const [deleting, setDeleting] = useState<NamespaceReport>();
  const lacking = useLacking("admin");
  const polled = usePoll((signal) => get<{ namespaces: NamespaceReport[] }>("/v0/namespaces", signal), 5000, []);
  const found = (polled.data?.namespaces ?? []).filter((row) => row.namespace.toLowerCase().includes(search.toLowerCase()));
  return (
    <>
      <div class="toolbar">
        <span class="muted">{polled.data && plural(found.length, "namespace")}</span>
        <span class="grow" />
        <Search label="Search namespaces" value={search} onChange={setSearch} />
        <Button kind="main" onPress={() => setCreating(true)} lacking={lacking}>
          Create namespace
        </Button>
      </div>
      <Settled of={polled} rows={8}>
        {({ namespaces }) =>
          namespaces.length === 0 ? (
            <Empty title="No namespaces yet" commands={["mainstem namespace create acme/shop"]}>
              A namespace has topics, groups and tables of its own, with limits and defaults.
            </Empty>
          ) : (
            <Table
              label="Namespaces"
              rows={found}
              keyOf={(row) => row.namespace}
              columns={[
                { name: "Namespace", cell: (row) => <span class="name">{row.namespace}</span>, wide: true },
                { name: "Topics", cell: (row) => used(row.topics_total, row.topics_max, count), number: true },
                { name: "Partitions", cell: (row) => used(row.partitions_total, row.partitions_max, count), number: true },
                { name: "Size", cell: (row) => used(row.bytes_total, row.bytes_max, bytes), number: true },
                { name: "Defaults of topics", cell: (row) => defaults(row) || "–" },
                { name: "Principals", cell: (row) => row.principals.join(", ") || "all" },
                {
                  name: "",
                  cell: (row) => (
                    <span class="segments">
                      <Button small lacking={lacking} onPress={() => setChanging(row)}>
                        Change
                      </Button>
                      <Button small kind="danger" lacking={lacking} onPress={() => setDeleting(row)}>
                        Delete
                      </Button>
                    </span>
                  ),
                },
              ]}
            />
          )
        }
      </Settled>
      {creating && <Policies onClose={() => setCreating(false)} onDone={polled.reload} />}
      {changing && <Policies of={changing} onClose={() => setChanging(undefined)} onDone={polled.reload} />}
      {deleting && <DeleteNamespace of={deleting} onClose={() => setDeleting(undefined)} onDone={polled.reload} />}
    </>
  );
}

const used = (total: number, most: number, show: (value: number) => string) =>
  most ? `${show(total)} of ${show(most)}` : show(total);

function defaults(row: NamespaceReport): string {
  return [
    row.retention_ms !== null && `retention ${row.retention_ms < 0 ? "by age off" : duration(row.retention_ms)}`,
    row.retention_bytes !== null && `retention ${row.retention_bytes < 0 ? "by size off" : bytes(row.retention_bytes)}`,
    row.ttl_ms !== null && `TTL ${row.ttl_ms === 0 ? "off" : duration(row.ttl_ms)}`,
    row.durability,
    row.partitions !== null && plural(row.partitions, "partition"),
  ]
    .filter(Boolean)
    .join(", ");
}

const NUMBERS = ["topics_max", "partitions_max", "bytes_max", "partitions", "retention_ms", "retention_bytes", "ttl_ms"] as const;
type Numbers = Record<(typeof NUMBERS)[number], string>;
const isLimit = (name: string) => name.endsWith("_max"); // 0 = unlimited; the others are null if unset

function typed(before: NamespaceReport | undefined, name: keyof Numbers): string {
  const value = before?.[name];
  return value === undefined || value === null || (isLimit(name) && value === 0) ? "" : String(value);
}

function Policies({ of: before, onClose, onDone }: { of?: NamespaceReport; onClose: () => void; onDone: () => void }) {
  const [name, setName] = useState("");
  const [numbers, setNumbers] = useState(() => Object.fromEntries(NUMBERS.map((one) => [one, typed(before, one)])) as Numbers);
  const [durability, setDurability] = useState<string>(before?.durability ?? "");
  const [principals, setPrincipals] = useState(before?.principals.join(" ") ?? "");
  const field = (one: keyof Numbers, label: string, hint?: string) => (
    <TextField label={label} type="number" value={numbers[one]} onChange={(value) => setNumbers({ ...numbers, [one]: value })} hint={hint} />
  );
  const save = async () => {
    const target = before?.namespace ?? name.trim();
    if (!target) throw new Error("Enter the name of the namespace.");
    const given = Object.fromEntries(
      NUMBERS.map((one) => [one, numbers[one] === "" ? (isLimit(one) ? 0 : null) : Number(numbers[one])]),
    );
    const body = {
      ...given,
      durability: durability || null,
      principals: principals.split(/[\s,]+/).filter(Boolean),
    } as NamespaceDescriptionBody;
    await put(path`/v0/namespaces/${target}`, body);
    notify(before ? `The namespace ${target} is changed.` : `The namespace ${target} is created.`);
    onDone();
  };
  return (
    <Dialog
      title={before ? `Change ${before.namespace}` : "Create namespace"}
      action={before ? "Change" : "Create"}
      onClose={onClose}
      onSubmit={save}
    >
      {!before && <TextField label="Name" value={name} onChange={setName} autofocus hint="One word or two: acme, or acme/shop" />}
      <TextField
        label="Principals"
        value={principals}
        onChange={setPrincipals}
        placeholder="User:alice User:billing"
        hint="Only these may use the namespace. Empty: all."
      />
      <h3>Limits (empty: unlimited)</h3>
      <div class="field-row">
        {field("topics_max", "Topics")}
        {field("partitions_max", "Partitions")}
        {field("bytes_max", "Bytes")}
      </div>
      <h3>Defaults of new topics (empty: those of the server)</h3>
      <div class="field-row">
        {field("partitions", "Partitions of a topic")}
        <Select
          label="Durability"
          value={durability}
          onChange={setDurability}
          options={[["", "server default"], ...["fsync", "disk", "memory", "ephemeral"].map((one) => [one, one] as const)]}
        />
      </div>
      <div class="field-row">
        {field("retention_ms", "Retention, ms", "-1: off")}
        {field("retention_bytes", "Retention, bytes", "-1: off")}
        {field("ttl_ms", "TTL, ms", "0: off")}
      </div>
    </Dialog>
  );
}

function DeleteNamespace(props: { of: NamespaceReport; onClose: () => void; onDone: () => void }) {
  const { namespace, topics_total: topics } = props.of;
  const [force, setForce] = useState(false);
  return (
    <Dialog
      title={`Delete the namespace ${namespace}?`}
      action="Delete namespace"
      danger
      lacking={topics && !force ? "the namespace has topics" : undefined}
      onClose={props.onClose}
      onSubmit={async () => {
        await del(path`/v0/namespaces/${namespace}` + (force ? "?force=true" : ""));
        notify(`The namespace ${namespace} is deleted.`);
        props.onDone();
      }}
    >
      {topics ? (
        <Check label={`Delete its ${plural(topics, "topic")} and their records too`} value={force} onChange={setForce} />
      ) : (
        <p>The namespace has no topics.</p>
      )}
      <p>This cannot be undone.</p>
    </Dialog>
  );
}
