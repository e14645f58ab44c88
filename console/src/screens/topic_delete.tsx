import { useState } from "preact/hooks";
import { path, post, query } from "../api";
import { count, plural } from "../format";
import { Button, Select, TextField } from "../parts/controls";
import { Dialog } from "../parts/dialog";
import { notify } from "../parts/notices";
import { Loading } from "../parts/states";
import { useLacking } from "../rights";
import type { TopicFacts } from "./topic";

export function DeleteRecords({ name, facts, reload }: { name: string; facts: TopicFacts | undefined; reload: () => void }) {
  const [before, setBefore] = useState("");
  const [match, setMatch] = useState("");
  const [partition, setPartition] = useState("0");
  const [asking, setAsking] = useState(false);
  const lacking = useLacking("delete");
  if (!facts) return <Loading />;
  const rows = facts.settings.partitions;
  const row = rows[Number(partition)];
  const nothing = before === "" && match === "" ? "enter a sequence number, a key, or both" : undefined;
  const which = [
    before !== "" && `with a sequence number below ${count(Number(before))}`,
    match !== "" && (match.endsWith("*") ? `whose key begins with “${match.slice(0, -1)}”` : `whose key is “${match}”`),
  ]
    .filter(Boolean)
    .join(" and ");
  return (
    <div class="form">
      <p class="muted">Records are deleted at once and permanently, for every door. Their offsets are not used again.</p>
      {rows.length > 1 && (
        <Select
          label="Partition"
          value={partition}
          onChange={setPartition}
          options={rows.map((one) => [String(one.partition), String(one.partition)] as const)}
        />
      )}
      <TextField
        label="Below sequence number"
        type="number"
        value={before}
        onChange={setBefore}
        hint={row && `The partition holds ${count(row.start + 1)} to ${count(row.end)}.`}
      />
      <TextField label="Key" value={match} onChange={setMatch} hint="A * at the end matches any suffix: eu:*" />
      <div class="toolbar">
        <Button kind="danger" lacking={lacking ?? nothing} onPress={() => setAsking(true)}>
          Delete records
        </Button>
      </div>
      {asking && (
        <Dialog
          title="Delete records?"
          action="Delete"
          danger
          onClose={() => setAsking(false)}
          onSubmit={async () => {
            const body = { before_seq: before === "" ? undefined : Number(before), match: match === "" ? undefined : match };
            const done = await post<{ deleted: number }>(path`/v0/topics/${name}/delete` + query({ partition }), body);
            notify(`${plural(done.deleted, "record")} deleted.`);
            reload();
          }}
        >
          <p>
            All records of {name} {which} go, in partition {partition}.
          </p>
        </Dialog>
      )}
    </div>
  );
}
