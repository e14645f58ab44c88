// What the server answers, as far as the console reads it.

export interface Tiers {
  memory_bytes: number;
  memory_bytes_max: number;
  wal_objects: number;
  wal_bytes: number;
  parquet_files: number;
  parquet_bytes: number;
  parquet_records: number;
  garbage_files: number;
}

export interface BrokerRow {
  broker: number;
  epoch: number;
  node: string;
  zone: string;
  addresses: Record<string, string>;
  here: boolean;
  silent_s: number;
}

export interface Overview {
  version: string;
  uptime_ms: number;
  doors: Record<string, string>;
  lake_drivers: number;
  node: string;
  broker: number;
  brokers: BrokerRow[];
  topics: number;
  partitions: number;
  records: number;
  bytes: number;
  appended: number;
  commits: number;
  open_transactions: number;
  routers: number;
  tiers: Tiers;
  disk: { free_bytes: number; total_bytes: number } | null;
  refusal: string | null;
  now_ms: number;
}

export interface TopicRow {
  topic: string;
  type: "log" | "queue";
  durability: string;
  partitions: number;
  records: number;
  bytes: number;
  end: number;
  last_write_ms: number | null;
  table: boolean;
}

export interface TopicRows {
  topics: TopicRow[];
  total: number;
}

export interface TopicConfig {
  type: "log" | "queue";
  ttl_ms: number;
  cap_records: number;
  cap_bytes: number;
  discard: string;
  durable: boolean;
  durability: string;
  priority: number | null;
  auto_priority: boolean;
  auto_create: boolean;
  idempotency_window_ms: number;
  dedupe_node: boolean;
  lease_ms: number;
  claim_jitter_ms: number;
  max_deliveries: number;
  dead_letter: string | null;
  leases_durable: boolean;
}

export interface TopicState {
  topic: string;
  type: "log" | "queue";
  head_seq: number;
  earliest_seq: number;
  count: number;
  bytes: number;
  config: TopicConfig;
  effective_priority: number;
  last_write_ts: number | null;
  last_read_ts: number | null;
  queue?: { ready: number; in_flight: number; dead_lettered: number };
}

export interface PartitionRow {
  partition: number;
  start: number;
  end: number;
  records: number;
  bytes: number;
  max_timestamp_ms: number;
}

export interface TopicSettings {
  topic: string;
  id: string;
  partitions: PartitionRow[];
  settings: Record<string, string>;
}

export type Content = { text?: string; base64?: string } | null;

export interface Message {
  offset: number;
  timestamp_ms: number;
  key: Content;
  value: Content;
  value_bytes: number;
  headers: { name: string; content: Content }[];
}

export interface PlacedMessage extends Message {
  partition: number;
}

export interface MessagePage {
  partition: number;
  start: number;
  end: number;
  next_from: number;
  next_before: number;
  messages: Message[];
  lost: { start: number; end: number; reason: string }[];
  performance: { server_total_ms: number; records_scanned: number };
}

export interface GroupRow {
  group: string;
  state: string;
  kind: string;
  protocol_type: string;
}

export interface GroupOffset {
  topic: string;
  partition: number;
  offset: number;
  start: number;
  end: number;
  lag: number;
  metadata: string;
}

export interface GroupDetail extends GroupRow {
  members: { member_id: string; client_id: string; client_host: string; instance_id: string | null }[];
  offsets: GroupOffset[];
  lag: number;
}

export interface Consumer {
  group: string;
  state: string;
  lag: number;
  partitions: { partition: number; offset: number; lag: number }[];
}

export interface LeaseList {
  ready: number;
  in_flight: number;
  dead_lettered: number;
  now_ms: number;
  leases: { $seq: number; node: string; deadline: number; deliveries: number; lease_id: string }[];
  delayed: { $seq: number; due: number; deliveries: number }[];
}

export interface RouterRow {
  router: string;
  source: string;
  dest: string;
  guarantee: string;
  forwarded_total: number;
}

export interface TransactionRow {
  transaction: string;
  phase: string;
  producer: number;
  epoch: number;
  timeout_ms: number;
  started_ms: number | null;
  open_ms: number;
  hanging: boolean;
  partitions: { topic: string; partitions: number[] }[];
}

export interface LakePartition {
  partition: number;
  start: number;
  end: number;
  materialised_to: number;
  lag_records: number;
  parts: number;
  files: number;
  file_bytes: number;
  records: number;
  stale_parts: number;
  generations: number[];
  published_to: number | null;
}

export interface LakeTopic {
  topic: string;
  wanted: boolean;
  partitions: LakePartition[];
  lag_records: number;
  file_bytes: number;
  problem: string;
}

export interface LakeStatus {
  store: string;
  topics: LakeTopic[];
  tasks: { task: string; holder: string; deadline_ms: number }[];
  garbage: number;
  now_ms: number;
  drivers: {
    heard_ms: number;
    report: {
      holder: string;
      state: string;
      rounds: number;
      running: number;
      tasks: number;
      failed: number;
      records: number;
      bytes: number;
      seconds: number;
      failing: { topic: string; error: string; failures: number; at_ms: number }[];
      tables_error: string;
    };
  }[];
}

export interface PipelineOutput {
  output: string;
  target: string;
  batch: number; // -1: none is done yet
  batch_ms: number;
  rows_in: number;
  rows_out: number;
  behind: number | null;
}

export interface PipelineRow {
  pipeline: string;
  run: string;
  state: string;
  started_ms: number;
  heard_ms: number;
  outputs: PipelineOutput[];
  error: string;
}

export interface PipelineList {
  pipelines: PipelineRow[];
}

export interface TableStatus {
  enabled: boolean;
  topic: string;
  table: string;
  location: string;
  columns: { name: string; type: string }[];
  partitions: {
    partition: number;
    end: number;
    materialised_to: number;
    published_to: number;
    lag_records: number;
  }[];
  lag_records: number;
  snapshots: number;
  snapshot_id: number | null;
  records: number;
  files: number;
  file_bytes: number;
  problem: string;
}

export interface HeldRange {
  topic: string;
  partition: number;
  base: number;
  end: number;
  bytes: number;
  live: boolean;
}

export interface StorageMap {
  objects: {
    number: number;
    bytes: number;
    sealed: boolean;
    commits: number;
    ranges: HeldRange[];
    ranges_total: number;
    tier: "disk" | "both" | "store";
  }[];
  objects_total: number;
  parts: {
    topic: string;
    partition: number;
    base: number;
    end: number;
    generation: number;
    records: number;
    bytes: number;
    files: string[];
  }[];
  parts_total: number;
  garbage: number;
  store: string;
}

export interface KeyRights {
  authentication: boolean;
  scopes: string[];
  prefixes: string[];
}
