import { useState } from "preact/hooks";
import { get, patch, path } from "../api";
import { ago, bytes, count, rate } from "../format";
import { Chart } from "../parts/chart";
import { Button, TextField } from "../parts/controls";
import { Dialog } from "../parts/dialog";
import { Loading } from "../parts/states";
import { Table } from "../parts/table";
import { usePoll } from "../poll";
import { useLacking } from "../rights";
import type { TopicHistory } from "../types";
import type { TopicFacts } from "./topic";

export function Partitions(props: { name: string; facts: TopicFacts | undefined; reload: () => void }) {
  const [growing, setGrowing] = useState(false);
  const lacking = useLacking("admin");
  if (!props.facts) return <Loading />;
  const rows = props.facts.settings.partitions;
  return (
    <>
      <div class="toolbar">
        <Button onPress={() => setGrowing(true)} lacking={lacking}>
          Add partitions
        </Button>
      </div>
      <Table
        label="Partitions"
        rows={rows}
        keyOf={(row) => row.partition}
        columns={[
          { name: "Partition", cell: (row) => row.partition, number: true },
          { name: "First offset", cell: (row) => count(row.start), number: true },
          { name: "End offset", cell: (row) => count(row.end), number: true },
          { name: "Records", cell: (row) => count(row.records), number: true },
          { name: "Size", cell: (row) => bytes(row.bytes), number: true },
          { name: "Last write", cell: (row) => ago(row.max_timestamp_ms), number: true },
          { name: "", cell: () => "", wide: true },
        ]}
      />
      <Throughput name={props.name} />
      {growing && (
        <Grow
          name={props.name}
          now={rows.length}
          onClose={() => {
            setGrowing(false);
            props.reload();
          }}
        />
      )}
    </>
  );
}

function Throughput({ name }: { name: string }) {
  const polled = usePoll((signal) => get<TopicHistory>(path`/v0/topics/${name}/history`, signal), 5000, [name]);
  const samples = polled.data?.samples ?? [];
  const times = samples.map((sample) => sample.at_ms / 1000);
  return (
    <div class="charts below">
      <Chart
        title="Records per second in the last hour"
        times={times}
        show={rate}
        lines={[{ label: "records", colour: "--chart-1", values: samples.map((sample) => sample.records) }]}
      />
      <Chart
        title="Bytes per second in the last hour"
        times={times}
        show={bytes}
        lines={[{ label: "bytes", colour: "--chart-2", values: samples.map((sample) => sample.bytes) }]}
      />
    </div>
  );
}

function Grow(props: { name: string; now: number; onClose: () => void }) {
  const [total, setTotal] = useState(String(props.now + 1));
  return (
    <Dialog
      title={`Partitions of ${props.name}`}
      action="Add"
      onClose={props.onClose}
      onSubmit={() => patch(path`/v0/topics/${props.name}/settings`, { partitions: Number(total) })}
    >
      <TextField label="Total" type="number" value={total} onChange={setTotal} autofocus />
      <p class="muted">New records with the same key may go to another partition than before. You cannot remove partitions.</p>
    </Dialog>
  );
}
