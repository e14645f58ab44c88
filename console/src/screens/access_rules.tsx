import { useState } from "preact/hooks";
import { get, post } from "../api";
import { count, plural } from "../format";
import { Badge, Button, Search, Select, TextField } from "../parts/controls";
import { Dialog } from "../parts/dialog";
import { notify } from "../parts/notices";
import { Empty, Settled } from "../parts/states";
import { Table } from "../parts/table";
import { usePoll } from "../poll";
import { useLacking } from "../rights";
import type { RuleBody, RuleList } from "../types";

type Rule = Required<RuleBody>;

const SHOWN = 500;
const RESOURCES = ["topic", "group", "transactional_id", "queue", "router", "table", "namespace", "cluster"];
const OPERATIONS = [
  "all",
  "read",
  "write",
  "create",
  "delete",
  "alter",
  "describe",
  "describe_configs",
  "alter_configs",
  "cluster_action",
  "idempotent_write",
];
const inWords = (names: string[]) => names.map((name) => [name, name.replaceAll("_", " ")] as const);

export function Rules() {
  const [search, setSearch] = useState("");
  const [resource, setResource] = useState("");
  const [permission, setPermission] = useState("");
  const [adding, setAdding] = useState(false);
  const [deleting, setDeleting] = useState<Rule>();
  const lacking = useLacking("admin");
  const polled = usePoll((signal) => get<{ rules: Rule[] }>("/v0/acls", signal), 5000, []);
  const found = (polled.data?.rules ?? []).filter(
    (rule) =>
      (!resource || rule.resource === resource) &&
      (!permission || rule.permission === permission) &&
      [rule.principal, rule.name, rule.operation, rule.host].some((text) => text.toLowerCase().includes(search.toLowerCase())),
  );
  return (
    <>
      <div class="toolbar">
        <span class="muted">{polled.data && plural(found.length, "rule")}</span>
        <span class="grow" />
        <Select
          bare
          label="Filter by permission"
          value={permission}
          onChange={setPermission}
          options={[
            ["", "Allow and deny"],
            ["allow", "Allow"],
            ["deny", "Deny"],
          ]}
        />
        <Select bare label="Filter by resource" value={resource} onChange={setResource} options={[["", "All resources"], ...inWords(RESOURCES)]} />
        <Search label="Search rules" value={search} onChange={setSearch} />
        <Button kind="main" onPress={() => setAdding(true)} lacking={lacking}>
          Add rule
        </Button>
      </div>
      <Settled of={polled} rows={8}>
        {({ rules }) =>
          rules.length === 0 ? (
            <Empty title="No rules yet" commands={["mainstem acl add User:alice read topic orders"]}>
              A rule allows or denies an operation on topics, groups, queues and more. It applies to every door. A denial wins.
            </Empty>
          ) : (
            <>
              <Table
                label="Rules"
                rows={found.slice(0, SHOWN)}
                keyOf={(rule) => Object.values(rule).join("\n")}
                columns={[
                  { name: "Principal", cell: (rule) => <span class="name">{rule.principal}</span>, wide: true },
                  {
                    name: "Permission",
                    cell: (rule) => <Badge kind={rule.permission === "allow" ? "good" : "bad"}>{rule.permission}</Badge>,
                  },
                  { name: "Operation", cell: (rule) => rule.operation.replaceAll("_", " ") },
                  { name: "Resource", cell: (rule) => rule.resource.replaceAll("_", " ") },
                  { name: "Name", cell: (rule) => <code>{named(rule)}</code> },
                  { name: "Host", cell: (rule) => (rule.host === "*" ? "any" : rule.host) },
                  {
                    name: "",
                    cell: (rule) => (
                      <Button small kind="danger" lacking={lacking} onPress={() => setDeleting(rule)}>
                        Delete
                      </Button>
                    ),
                  },
                ]}
              />
              {found.length > SHOWN && <p class="muted">The first {count(SHOWN)}. Search for the others.</p>}
            </>
          )
        }
      </Settled>
      {adding && <AddRule onClose={() => setAdding(false)} onDone={polled.reload} />}
      {deleting && (
        <Dialog
          title="Delete this rule?"
          action="Delete rule"
          danger
          onClose={() => setDeleting(undefined)}
          onSubmit={async () => {
            const { rules } = await post<RuleList>("/v0/acls/delete", { rules: [deleting] });
            notify(rules.length ? "The rule is deleted." : "The rule did not exist any more.");
            polled.reload();
          }}
        >
          <p>
            {deleting.permission} {deleting.principal} {deleting.operation.replaceAll("_", " ")} on{" "}
            {deleting.resource.replaceAll("_", " ")} <code>{named(deleting)}</code>
          </p>
        </Dialog>
      )}
    </>
  );
}

const named = (rule: Rule) => (rule.pattern === "prefixed" ? `${rule.name}*` : rule.name);

function AddRule({ onClose, onDone }: { onClose: () => void; onDone: () => void }) {
  const [principal, setPrincipal] = useState("User:");
  const [permission, setPermission] = useState("allow");
  const [operation, setOperation] = useState("read");
  const [resource, setResource] = useState("topic");
  const [name, setName] = useState("");
  const [pattern, setPattern] = useState("literal");
  const [host, setHost] = useState("*");
  const add = async () => {
    if (!/^User:./.test(principal.trim())) throw new Error("A principal is User:name, or User:* for everybody.");
    const rule: Rule = {
      principal: principal.trim(),
      permission,
      operation,
      resource,
      name: name.trim() || "*",
      pattern: name.trim() ? pattern : "literal",
      host: host.trim() || "*",
    };
    await post("/v0/acls", { rules: [rule] });
    notify("The rule applies from now on.");
    onDone();
  };
  return (
    <Dialog title="Add rule" action="Add" onClose={onClose} onSubmit={add}>
      <TextField label="Principal" value={principal} onChange={setPrincipal} autofocus hint="User:name, or User:* for everybody" />
      <div class="field-row">
        <Select
          label="Permission"
          value={permission}
          onChange={setPermission}
          options={[
            ["allow", "allow"],
            ["deny", "deny"],
          ]}
        />
        <Select label="Operation" value={operation} onChange={setOperation} options={inWords(OPERATIONS)} />
      </div>
      <Select label="Resource" value={resource} onChange={setResource} options={inWords(RESOURCES)} />
      {resource !== "cluster" && (
        <div class="field-row">
          <TextField label="Name" value={name} onChange={setName} hint="Empty: all of them." />
          <Select
            label="The name is"
            value={pattern}
            onChange={setPattern}
            options={[
              ["literal", "the whole name"],
              ["prefixed", "a prefix"],
            ]}
          />
        </div>
      )}
      <TextField label="Host" value={host} onChange={setHost} hint="The address of the client; * for any" />
    </Dialog>
  );
}
