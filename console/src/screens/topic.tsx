import { useState } from "preact/hooks";
import { del, get, path } from "../api";
import { ago, bytes, count, plural } from "../format";
import { Badge, Button } from "../parts/controls";
import { Dialog } from "../parts/dialog";
import { Failed, Loading } from "../parts/states";
import { Tabs } from "../parts/tabs";
import { usePoll } from "../poll";
import { useLacking } from "../rights";
import { go, to } from "../route";
import type { TopicDescription, TopicSettings } from "../types";
import { Config } from "./topic_config";
import { Consumers } from "./topic_consumers";
import { DeleteRecords } from "./topic_delete";
import { Messages } from "./topic_messages";
import { Partitions } from "./topic_partitions";
import { Produce } from "./topic_produce";
import { TableView } from "./topic_table";

const EVERY_MS = 2000;

const TABS = [
  ["messages", "Messages"],
  ["produce", "Produce"],
  ["partitions", "Partitions"],
  ["consumers", "Consumers"],
  ["config", "Config"],
  ["table", "Table"],
  ["delete", "Delete records"],
] as const;

export interface TopicFacts {
  state: TopicDescription;
  settings: TopicSettings;
}

export function Topic({ name, tab }: { name: string; tab: string }) {
  const [removing, setRemoving] = useState(false);
  const lacking = useLacking("delete");
  const polled = usePoll<TopicFacts>(
    async (signal) => {
      const [state, settings] = await Promise.all([
        get<TopicDescription>(path`/v0/topics/${name}` + "?touch=false", signal),
        get<TopicSettings>(path`/v0/topics/${name}/settings`, signal),
      ]);
      return { state, settings };
    },
    EVERY_MS,
    [name],
  );
  const facts = polled.data;
  const partitions = facts?.settings.partitions ?? [];
  const records = partitions.reduce((sum, row) => sum + row.records, 0);
  const lastWrite = Math.max(-1, ...partitions.map((row) => row.max_timestamp_ms), facts?.state.last_write_ts ?? -1);
  const size = partitions.reduce((sum, row) => sum + row.bytes, 0);
  return (
    <section class="screen tall">
      <div class="screen-head">
        <p class="crumbs">
          <a href={to("topics")}>Topics</a>
        </p>
        <h1 class="name">{name}</h1>
        {facts?.state.type === "queue" && (
          <a href={to("queues", name)}>
            <Badge>queue</Badge>
          </a>
        )}
        <span class="muted facts">
          {facts &&
            `${plural(records, "record")}, ${bytes(size)}, ${plural(partitions.length, "partition")}, last write ${ago(lastWrite)}`}
        </span>
        <span class="grow" />
        <Button kind="danger" lacking={lacking} onPress={() => setRemoving(true)}>
          Delete topic
        </Button>
      </div>
      <Tabs label="Tabs of the topic" tabs={TABS} current={tab} hrefOf={(one) => to("topics", name, one)} />
      {polled.error?.status === 404 ? (
        <Failed message={`Topic ${name} does not exist. It may have been deleted.`} onRetry={polled.reload} />
      ) : polled.error && !facts ? (
        <Failed message={polled.error.message} onRetry={polled.reload} />
      ) : (
        <Part tab={tab} name={name} facts={facts} reload={polled.reload} />
      )}
      {removing && (
        <Dialog
          title={`Delete ${name}?`}
          action="Delete topic"
          danger
          onClose={() => setRemoving(false)}
          onSubmit={async () => {
            await del(path`/v0/topics/${name}`);
            go("topics");
          }}
        >
          <p>
            All of its records ({count(records)}) go, and every router from or to it. Nothing brings them back.
          </p>
        </Dialog>
      )}
    </section>
  );
}

function Part(props: { tab: string; name: string; facts: TopicFacts | undefined; reload: () => Promise<void> }) {
  const { tab, name, facts, reload } = props;
  switch (tab) {
    case "produce":
      return <Produce name={name} partitions={facts?.settings.partitions.length ?? 1} onDone={() => void reload()} />;
    case "partitions":
      return <Partitions name={name} facts={facts} reload={reload} />;
    case "consumers":
      return <Consumers name={name} />;
    case "config":
      return <Config key={facts ? "there" : "waiting"} name={name} facts={facts} reload={reload} />;
    case "table":
      return <TableView name={name} />;
    case "delete":
      return <DeleteRecords name={name} facts={facts} reload={reload} />;
    default:
      return facts ? <Messages name={name} partitions={facts.settings.partitions.length} /> : <Loading rows={10} />;
  }
}
