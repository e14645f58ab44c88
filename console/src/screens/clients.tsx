// The connected Kafka clients and their throughput. Part of the overview.

import { useRef } from "preact/hooks";
import { get } from "../api";
import { bytes, count } from "../format";
import { Table } from "../parts/table";
import { usePoll } from "../poll";
import { useLacking } from "../rights";
import type { ClientList, ClientTraffic } from "../types";

const EVERY_MS = 2000;
const SHOWN = 12;

interface Measured extends ClientTraffic {
  writes: number | null; // bytes per second, after two polls
  reads: number | null;
}

export function Clients() {
  return useLacking("admin") ? null : <Connected />;
}

function Connected() {
  const before = useRef<{ atMs: number; clients: Map<string, ClientTraffic> }>(undefined);
  const polled = usePoll(
    async (signal) => {
      const { clients } = await get<ClientList>("/v0/overview/clients", signal);
      const earlier = before.current;
      const now = { atMs: performance.now(), clients: new Map(clients.map((one) => [keyOf(one), one])) };
      before.current = now;
      return clients
        .map((one) => measured(one, earlier?.clients.get(keyOf(one)), earlier ? (now.atMs - earlier.atMs) / 1000 : 0))
        .sort((one, other) => busy(other) - busy(one));
    },
    EVERY_MS,
    [],
  );
  if (!polled.data?.length) return null;
  return (
    <>
      <h2>Kafka clients</h2>
      <Table
        label="Kafka clients"
        rows={polled.data.slice(0, SHOWN)}
        keyOf={keyOf}
        columns={[
          { name: "Client", cell: (row) => <span class="name">{row.client || "without a name"}</span>, wide: true },
          { name: "Principal", cell: (row) => row.principal },
          { name: "Host", cell: (row) => row.host },
          { name: "Connections", cell: (row) => count(row.connections), number: true },
          { name: "Sends", cell: (row) => perSecond(row.writes), number: true },
          { name: "Receives", cell: (row) => perSecond(row.reads), number: true },
        ]}
      />
      {polled.data.length > SHOWN && <p class="muted">The busiest {SHOWN} of {count(polled.data.length)}.</p>}
    </>
  );
}

function measured(one: ClientTraffic, before: ClientTraffic | undefined, seconds: number): Measured {
  // A connection that closed takes its bytes along: then the difference tells nothing.
  const grown = (now: number, then: number) => (seconds > 0 ? Math.max(0, now - then) / seconds : null);
  if (!before) return { ...one, writes: null, reads: null };
  return {
    ...one,
    writes: grown(one.received_bytes, before.received_bytes),
    reads: grown(one.sent_bytes, before.sent_bytes),
  };
}

const busy = (row: Measured) => (row.writes ?? 0) + (row.reads ?? 0);
const keyOf = (row: ClientTraffic) => [row.door, row.client, row.principal, row.host].join();
const perSecond = (value: number | null) => (value === null ? "–" : `${bytes(Math.round(value))}/s`);
