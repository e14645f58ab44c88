import { get, path } from "../api";
import { count } from "../format";
import { Badge } from "../parts/controls";
import { Empty, Settled } from "../parts/states";
import { Table } from "../parts/table";
import { usePoll } from "../poll";
import { go } from "../route";
import type { TopicConsumer } from "../types";

export function Consumers({ name }: { name: string }) {
  const polled = usePoll(
    (signal) => get<{ consumers: TopicConsumer[] }>(path`/v0/topics/${name}/consumers`, signal),
    2000,
    [name],
  );
  return (
    <Settled of={polled}>
      {({ consumers }) =>
        consumers.length ? (
          <Table
            label="Consumers"
            rows={consumers}
            keyOf={(row) => row.group}
            onOpen={(row) => go(row.kind === "subscription" ? "subscriptions" : "groups", row.group)}
            columns={[
              { name: "Group", cell: (row) => <span class="name">{row.group}</span>, wide: true },
              { name: "Kind", cell: (row) => row.kind },
              { name: "State", cell: (row) => <Badge kind={row.state === "Stable" ? "good" : "plain"}>{row.state}</Badge> },
              { name: "Partitions", cell: (row) => count(row.partitions.length), number: true },
              { name: "Lag", cell: (row) => count(row.lag), number: true },
            ]}
          />
        ) : (
          <Empty title="No group has read this topic" commands={[`mainstem consume ${name} --group my-group`]}>
            A group shows up once it commits how far it has read.
          </Empty>
        )
      }
    </Settled>
  );
}
