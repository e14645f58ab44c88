// Requests and responses of the server. Made from src/mainstem/api by `make reference`: do not edit.

export interface AckResult {
  topic: string;
  acked: number;
  skipped: number[];
  ready: number;
  in_flight: number;
  performance: Performance;
}

export interface Alert {
  kind: "dead_letters" | "growing_lag" | "hanging_transaction" | "table_behind" | "disk" | "clock" | "missing_records";
  critical: boolean;
  text: string;
  topic: string | null;
  group: string | null;
  transaction: string | null;
}

export interface AssignedPartition {
  topic: string;
  partition: number;
  offset: number | null;
  start: number;
  end: number;
}

export interface AssignedTopic {
  topic: string;
  partitions: number[];
}

export interface AtomicWriteBody {
  transaction: string;
  key: string;
  writes?: TransactionWrite[];
  offsets?: TransactionGroupOffsets[];
}

export interface BackupBody {
  to: string;
}

export interface BackupReport {
  name: string;
  position: number;
  files: number;
  bytes: number;
  copied_bytes: number;
  store_files: number;
}

export interface BatchAppended {
  topic: string;
  partition: number;
  offset: number;
  count: number;
}

export interface BrokerSummary {
  broker: number;
  epoch: number;
  node: string;
  zone: string;
  addresses: Record<string, string>;
  here: boolean;
  silent_s: number;
}

export interface BrokerView {
  broker: number;
  epoch: number;
  node: string;
  zone: string;
  addresses: Record<string, string>;
  silent_s: number;
}

export interface CaughtUp {
  topic: string;
  head_seq: number;
  $partition?: number;
}

export interface ClaimBody {
  node: string;
  max?: number;
  lease_ms?: number;
}

export interface ClaimResponse {
  topic: string;
  claimed: JobDelivery[];
  count: number;
  ready: number;
  performance: Performance;
}

export interface ClientList {
  clients: ClientTraffic[];
  performance: Performance;
}

export interface ClientTraffic {
  door: string;
  client: string;
  principal: string;
  host: string;
  connections: number;
  received_bytes: number;
  sent_bytes: number;
}

export interface ClusterView {
  cluster: string;
  shared: boolean;
  broker: number;
  epoch: number;
  position: number;
  refusal: string | null;
  upkeep: number;
  clock_off_ms: number | null;
  brokers: BrokerView[];
}

export interface CollectResult {
  wal_objects: number;
  files: number;
}

export interface Column {
  id: number;
  name: string;
  type: string;
  path?: string;
  ids?: number[];
  sources?: string[][];
}

export interface CompatibilityBody {
  compatibility?: string;
  compatibilityLevel?: string;
  normalize?: boolean;
  alias?: string;
  validateFields?: boolean;
  compatibilityGroup?: string;
  defaultMetadata?: Record<string, unknown>;
  overrideMetadata?: Record<string, unknown>;
  defaultRuleSet?: Record<string, unknown>;
  overrideRuleSet?: Record<string, unknown>;
}

export interface CompatibilityReport {
  is_compatible: boolean;
  messages?: string[];
}

export interface ConsumerPartition {
  partition: number;
  offset: number | null;
  lag: number;
}

export type DataFile = [key: string, day: number, base: number, end: number, records: number, bytes: number, max_timestamp: number];

export interface DecodedContent {
  schema_id: number;
  schema_type: string;
  json: string;
  json_bytes: number;
}

export interface DelayedJob {
  $seq: number;
  due: number;
  deliveries: number;
}

export interface DeleteBody {
  before_seq?: number;
  match?: unknown;
}

export interface DeleteResult {
  topic: string;
  deleted: number;
  earliest_seq: number;
  head_seq: number;
  count: number;
  bytes: number;
  performance: Performance;
}

export interface DiffBody {
  from_seq?: number;
  limit?: number;
  node?: string | string[];
  include_tags?: boolean;
  include_meta?: boolean;
  wait_ms?: number;
  max_batch_bytes?: number;
  include_trace?: boolean;
  include_headers?: boolean;
  from?: Record<string, number>;
  partitions?: number[];
}

export interface DiffResult {
  topic: string;
  records: FetchedRecord[];
  next_from_seq: number;
  head_seq: number;
  earliest_seq: number;
  caught_up: boolean;
  tombstone: ReadGap | null;
  lag: number;
  performance: Performance;
}

export interface DiskSpace {
  free_bytes: number;
  total_bytes: number;
}

export interface DriverReport {
  holder: string;
  state: string;
  rounds: number;
  running: number;
  tasks: number;
  failed: number;
  records: number;
  bytes: number;
  seconds: number;
  failing: TopicFailure[];
  tables_error: string;
}

export interface DriverReportAccepted {
  heard: boolean;
}

export interface EraseBody {
  key?: string;
  key_base64?: string;
  match?: unknown;
  where?: unknown;
}

export interface ErasedTopicView {
  topic: string;
  why: string;
  records_deleted: number;
}

export interface ErasureList {
  erasures: ErasureView[];
}

export interface ErasureView {
  id: string;
  topic: string;
  by: string;
  phase: string;
  waits_for: string;
  accepted_ms: number;
  changed_ms: number;
  topics: ErasedTopicView[];
  problem: string;
  report: string;
  public_key: string;
}

export interface ErrorBody {
  code: string;
  message: string;
  detail?: unknown;
}

export interface ErrorEvent {
  code: string;
  message: string;
  topic?: string;
  detail?: unknown;
}

export interface ErrorResponse {
  error: ErrorBody;
}

export interface ExtendJobsBody {
  node: string;
  seqs: number[];
  lease_ids?: string[];
  lease_ms: number;
}

export interface ExtendLeaseBody {
  stream: number;
  token: number;
  lease_ms: number;
}

export interface ExtendResult {
  topic: string;
  extended: number;
  skipped: number[];
  deadlines: Record<string, number>;
  performance: Performance;
}

export interface FetchedRecord {
  $seq: number;
  $ts: number;
  data?: unknown;
  $tag?: string;
  $node?: string;
  meta?: unknown;
  $raw?: string;
  $trace?: string;
  $partition?: number;
  $headers?: ([string, string | null])[];
}

export interface GapEvent {
  topic: string;
  reason: string;
  gap_from: number;
  gap_to: number;
  earliest_seq: number;
  head_seq: number;
  $partition?: number;
}

export interface GroupDeletion {
  group: string;
  deleted: boolean;
  performance: Performance;
}

export interface GroupDescription {
  group: string;
  state: string;
  kind: string;
  protocol_type: string;
  members: MemberDescription[];
  offsets: GroupOffset[];
  lag: number;
  performance: Performance;
  coordinator: string | null;
}

export interface GroupHistory {
  group: string;
  every_ms: number;
  samples: LagSample[];
  performance: Performance;
}

export interface GroupLeft {
  group: string;
  member_id: string;
  performance: Performance;
}

export interface GroupList {
  groups: GroupListing[];
  performance: Performance;
}

export interface GroupListing {
  group: string;
  state: string;
  kind: string;
  protocol_type: string;
  members: number | null;
  lag: number | null;
  topics: string[];
  recent: number[];
}

export interface GroupMembership {
  group: string;
  member_id: string;
  epoch: number;
  heartbeat_ms: number;
  assignment: AssignedPartition[] | null;
  performance: Performance;
}

export interface GroupOffset {
  topic: string;
  partition: number;
  offset: number | null;
  start: number;
  end: number;
  lag: number;
  metadata: string;
  subscription: SubscriptionReport | null;
}

export interface GroupOffsetsCommitted {
  group: string;
  committed: number;
}

export interface GroupPosition {
  topic: string;
  offset: number;
  partition?: number;
}

export interface GroupPositionsBody {
  offsets: GroupPosition[];
  member_id?: string;
  epoch?: number;
}

export interface Health {
  status: "ok";
  version: string;
  uptime_ms: number;
}

export interface HeartbeatBody {
  member_id: string;
  epoch: number;
  owned?: OwnedPartition[];
  instance_id?: string;
}

export interface JobDelivery {
  $seq: number;
  lease_id: string;
  deadline: number;
  $ts: number;
  deliveries: number;
  data?: unknown;
  $tag?: string;
  meta?: unknown;
  $raw?: string;
  $trace?: string;
  topic?: string;
}

export interface JobLease {
  $seq: number;
  node: string;
  deadline: number;
  deliveries: number;
  lease_id: string;
}

export interface JoinBody {
  topics: string[];
  client_id?: string;
  instance_id?: string;
  assignor?: string;
  rebalance_timeout_ms?: number;
}

export interface KeyBody {
  name?: string;
  scopes?: string;
  prefixes?: string[];
  namespace?: string;
  ttl_ms?: number;
}

export interface KeyCreated {
  id: string;
  principal: string;
  scopes: string;
  prefixes: string[];
  namespace: string;
  created_ms: number;
  expires_ms: number | null;
  rotated_ms: number | null;
  secret: string;
  performance: Performance;
}

export interface KeyDescription {
  id: string;
  principal: string;
  scopes: string;
  prefixes: string[];
  namespace: string;
  created_ms: number;
  expires_ms: number | null;
  rotated_ms: number | null;
}

export interface KeyList {
  keys: KeyDescription[];
  performance: Performance;
}

export interface KeyRevoked {
  id: string;
  revoked: boolean;
  performance: Performance;
}

export interface KeyRights {
  authentication: boolean;
  scopes: string[];
  prefixes: string[];
}

export interface LagSample {
  at_ms: number;
  lag: number;
}

export interface LakeStatus {
  store: string;
  topics: TopicProgress[];
  tasks: LeasedTask[];
  garbage: number;
  now_ms: number;
  drivers: ReceivedDriverReport[];
}

export interface LeaseExtended {
  deadline_ms: number;
}

export interface LeaseList {
  topic: string;
  ready: number;
  in_flight: number;
  dead_lettered: number;
  now_ms: number;
  leases: JobLease[];
  delayed: DelayedJob[];
  performance: Performance;
}

export interface LeaseReleased {
  released: boolean;
}

export interface LeasedTask {
  task: string;
  holder: string;
  deadline_ms: number;
}

export interface LeaveBody {
  member_id: string;
  instance_id?: string;
}

export interface LostOffsets {
  start: number;
  end: number;
  reason: string;
}

export interface MemberDescription {
  member_id: string;
  client_id: string;
  client_host: string;
  instance_id: string | null;
  assignment: AssignedTopic[];
}

export interface Message {
  offset: number;
  timestamp_ms: number;
  key: MessageContent | null;
  value: MessageContent | null;
  value_bytes: number;
  headers: MessageHeader[];
  key_decoded: DecodedContent | null;
  value_decoded: DecodedContent | null;
}

export interface MessageContent {
  text?: string;
  base64?: string;
}

export interface MessageHeader {
  name: string;
  content: MessageContent | null;
}

export interface MessageList {
  topic: string;
  partition: number;
  start: number;
  end: number;
  next_from: number;
  next_before: number;
  messages: Message[];
  lost: LostOffsets[];
  performance: Performance;
}

export interface NackBody {
  node: string;
  seqs: number[];
  lease_ids?: string[];
  delay_ms?: number;
  error?: string;
}

export interface NackResult {
  topic: string;
  nacked: number;
  skipped: number[];
  ready: number;
  in_flight: number;
  performance: Performance;
}

export interface NamespaceConfigured {
  created: boolean;
  namespace: NamespaceReport;
  performance: Performance;
}

export interface NamespaceDeletion {
  namespace: string;
  topics_deleted: number;
  performance: Performance;
}

export interface NamespaceDescriptionBody {
  retention_ms?: number | null;
  retention_bytes?: number | null;
  ttl_ms?: number | null;
  durability?: "ephemeral" | "memory" | "disk" | "fsync" | null;
  partitions?: number | null;
  principals?: string[];
  topics_max?: number;
  partitions_max?: number;
  bytes_max?: number;
  keep_backlog?: boolean | null;
  subscription_ttl_ms?: number | null;
  backlog_bytes?: number | null;
  backlog_bytes_policy?: "producer_request_hold" | "producer_exception" | "consumer_backlog_eviction" | null;
  backlog_ms?: number | null;
  backlog_ms_policy?: "producer_request_hold" | "producer_exception" | "consumer_backlog_eviction" | null;
  deduplication?: boolean | null;
  producers_max?: number | null;
  consumers_max?: number | null;
  subscriptions_max?: number | null;
  subscription_consumers_max?: number | null;
  consumer_unacked_max?: number | null;
  subscription_unacked_max?: number | null;
  subscription_expiry_ms?: number | null;
  inactive_ms?: number | null;
  inactive_mode?: "delete_when_no_subscriptions" | "delete_when_subscriptions_caught_up" | null;
}

export interface NamespaceReport {
  namespace: string;
  retention_ms: number | null;
  retention_bytes: number | null;
  ttl_ms: number | null;
  durability: "ephemeral" | "memory" | "disk" | "fsync" | null;
  partitions: number | null;
  principals: string[];
  topics_max: number;
  partitions_max: number;
  bytes_max: number;
  keep_backlog: boolean | null;
  subscription_ttl_ms: number | null;
  backlog_bytes: number | null;
  backlog_bytes_policy: "producer_request_hold" | "producer_exception" | "consumer_backlog_eviction" | null;
  backlog_ms: number | null;
  backlog_ms_policy: "producer_request_hold" | "producer_exception" | "consumer_backlog_eviction" | null;
  deduplication: boolean | null;
  producers_max: number | null;
  consumers_max: number | null;
  subscriptions_max: number | null;
  subscription_consumers_max: number | null;
  consumer_unacked_max: number | null;
  subscription_unacked_max: number | null;
  subscription_expiry_ms: number | null;
  inactive_ms: number | null;
  inactive_mode: "delete_when_no_subscriptions" | "delete_when_subscriptions_caught_up" | null;
  topics_total: number;
  partitions_total: number;
  bytes_total: number;
  created_ms: number;
}

export interface NamespaceReports {
  namespaces: NamespaceReport[];
  performance: Performance;
}

export interface OffsetReset {
  topic: string;
  partition: number;
  before: number | null;
  after: number;
}

export interface OutputReport {
  output: string;
  target: string;
  batch?: number;
  batch_ms?: number;
  rows_in?: number;
  rows_out?: number;
  positions?: Position[];
}

export interface OutputStatus {
  output: string;
  target: string;
  batch: number;
  batch_ms: number;
  rows_in: number;
  rows_out: number;
  behind: number | null;
}

export interface OwnedPartition {
  topic: string;
  partition: number;
}

export type Part = [base: number, end: number, generation: number, files: DataFile[], records: number];

export type PartChange = [stream: number, old: [number, number, number][], new: [number, number, number][]];

export interface PartRow {
  topic: string;
  partition: number;
  base: number;
  end: number;
  generation: number;
  records: number;
  bytes: number;
  files: string[];
}

export interface PartitionCounts {
  partition: number;
  head_seq: number;
  earliest_seq: number;
  count: number;
  bytes: number;
}

export interface PartitionDescription {
  partition: number;
  start: number;
  end: number;
  records: number;
  bytes: number;
  max_timestamp_ms: number;
}

export interface PartitionGap {
  gap_from: number;
  gap_to: number;
  reason: string;
  missed_estimate: number;
  earliest_seq: number;
  head_seq: number;
  $partition: number;
}

export interface PartitionPosition {
  partition: number;
  start: number;
  end: number;
  offset: number | null;
}

export interface PartitionProgress {
  partition: number;
  stream: number;
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

export interface PartitionedDiffResult {
  topic: string;
  records: FetchedRecord[];
  next: Record<string, number>;
  head: Record<string, number>;
  earliest: Record<string, number>;
  caught_up: boolean;
  tombstones: PartitionGap[];
  lag: number;
  performance: Performance;
}

export interface PendingChange {
  stream: number;
  partition: number;
  old: [number, number, number][];
  new: Part[];
}

export interface Performance {
  server_total_ms: number;
  wal_append_ms?: number;
  fsync_ms?: number;
  records_scanned?: number;
  throttle_wait_ms?: number;
}

export interface PipelineList {
  pipelines: PipelineStatus[];
  performance: Performance;
}

export interface PipelineReport {
  pipeline: string;
  run: string;
  state: "starting" | "running" | "done" | "stopped" | "failed";
  started_ms: number;
  topics?: string[];
  outputs?: OutputReport[];
  error?: string;
}

export interface PipelineReportAccepted {
  heard: boolean;
  performance: Performance;
}

export interface PipelineStatus {
  pipeline: string;
  run: string;
  state: string;
  started_ms: number;
  heard_ms: number;
  topics: string[];
  outputs: OutputStatus[];
  error: string;
}

export interface Plan {
  tasks: Task[];
  now_ms: number;
  problems: Record<string, string>;
}

export interface PlanRequest {
  holder: string;
  topics?: string[];
  kinds?: ("materialise" | "rewrite" | "merge" | "compact")[];
  tasks_max?: number;
  lease_ms?: number;
  least_records?: number;
  wait_for_bytes?: number;
  wait_for_ms?: number;
}

export type Position = [topic: string, partition: number, offset: number];

export interface Publication {
  stream: number;
  token: number;
  sources: [number, number, number][];
  parts: Part[];
  removed_records?: number;
  undecodable?: [number, number][];
}

export interface PublicationsBody {
  publications: Publication[];
}

export interface PublishResult {
  frontier?: number;
  error?: ErrorBody;
}

export interface PublishResults {
  results: PublishResult[];
}

export interface QueueStats {
  ready: number;
  in_flight: number;
  dead_lettered: number;
}

export interface RateBody {
  limits: Record<string, number | null>;
  user?: string;
  client?: string;
  group?: string;
  namespace?: string;
  topic?: string;
}

export interface RateChanged {
  rate: RateDescription;
  performance: Performance;
}

export interface RateDescription {
  limits: Record<string, number>;
  throttled_total: number;
  throttled_ms: number;
  user?: string;
  client?: string;
  group?: string;
  namespace?: string;
  topic?: string;
}

export interface RateList {
  rates: RateDescription[];
  performance: Performance;
}

export interface ReadGap {
  gap_from: number;
  gap_to: number;
  reason: string;
  missed_estimate: number;
  earliest_seq: number;
  head_seq: number;
}

export interface Readiness {
  status: "ready";
  wal_replay_complete: boolean;
  topics: number;
}

export interface ReceivedDriverReport {
  report: DriverReport;
  heard_ms: number;
}

export interface RecordBody {
  data: unknown;
  tag?: string;
  node?: string;
  meta?: unknown;
  delay_ms?: number;
  ttl_ms?: number;
}

export interface RecordsEvent {
  topic: string;
  from_seq: number;
  head_seq: number;
  records: FetchedRecord[];
  to_seq: number;
  $partition?: number;
}

export interface RegistryMode {
  mode: string;
}

export interface ReleaseBody {
  stream: number;
  token: number;
}

export interface RepackedRow {
  key: string;
  bytes: number;
  generation: number;
  first: number;
  end: number;
  streams: number;
  ranges: StoredRange[];
  ranges_total: number;
  damaged: boolean;
}

export interface RequeueBody {
  seqs: number[];
  queue?: string;
}

export interface RequeueResult {
  topic: string;
  requeued: RequeuedJob[];
  skipped: number[];
  performance: Performance;
}

export interface RequeuedJob {
  $seq: number;
  queue: string;
  queue_seq: number;
}

export interface ResetBody {
  topic: string;
  to: "earliest" | "latest" | "offset" | "time" | "skip" | "redeliver";
  offset?: number;
  timestamp_ms?: number;
  partitions?: number[];
  dry_run?: boolean;
  count?: number;
}

export interface ResetResult {
  group: string;
  moved: OffsetReset[];
  dry_run: boolean;
  performance: Performance;
}

export interface RouterBody {
  source: string;
  dest: string;
  preserve_node?: boolean;
  preserve_tag?: boolean;
  create_dest?: boolean;
  filter?: unknown;
  allow_cycle?: boolean;
  guarantee?: "at_least_once" | "exactly_once";
}

export interface RouterConfigured {
  router: string;
  created: boolean;
  source: string;
  dest: string;
  preserve_node: boolean;
  preserve_tag: boolean;
  filter: string | string[] | null;
  allow_cycle: boolean;
  guarantee: string;
  performance: Performance;
}

export interface RouterDeletion {
  router: string;
  deleted: boolean;
  performance: Performance;
}

export interface RouterDescription {
  router: string;
  source: string;
  dest: string;
  preserve_node: boolean;
  preserve_tag: boolean;
  filter: string | string[] | null;
  allow_cycle: boolean;
  guarantee: string;
  forwarded_total: number;
  performance: Performance;
}

export interface RouterList {
  routers: RouterListing[];
  performance: Performance;
  next_cursor?: string;
}

export interface RouterListing {
  router: string;
  source: string;
  dest: string;
  guarantee: string;
  forwarded_total: number;
}

export interface RuleBody {
  principal: string;
  operation: string;
  resource: string;
  name: string;
  pattern: string;
  permission: string;
  host: string;
}

export interface RuleList {
  rules: RuleBody[];
  performance: Performance;
}

export interface RulesBody {
  rules: RuleBody[];
}

export interface S3CredentialsBody {
  ttl_ms?: number;
}

export interface S3CredentialsIssued {
  access_key_id: string;
  secret_access_key: string;
  session_token: string;
  expires_ms: number | null;
  endpoint: string | null;
  region: string;
  performance: Performance;
}

export interface SchemaBody {
  schema?: string;
  schemaType?: string;
  references?: SchemaReferenceBody[];
  metadata?: Record<string, unknown>;
  ruleSet?: Record<string, unknown>;
  id?: number;
  version?: number;
}

export interface SchemaContextId {
  context: string;
  id: number;
}

export interface SchemaReferenceBody {
  name: string;
  subject: string;
  version: number;
}

export interface SchemaText {
  schema: string;
  guid: string;
  schemaType?: string;
  references?: SchemaReferenceBody[];
  metadata?: Record<string, unknown>;
  ruleSet?: Record<string, unknown>;
  maxId?: number;
}

export interface SchemaUse {
  subject: string;
  version: number;
}

export interface SchemaVersion {
  subject: string;
  version: number;
  id: number;
  guid: string;
  schema: string;
  schemaType?: string;
  references?: SchemaReferenceBody[];
  metadata?: Record<string, unknown>;
  ruleSet?: Record<string, unknown>;
  deleted?: boolean;
}

export interface ServerHistory {
  every_ms: number;
  samples: ServerSample[];
  performance: Performance;
}

export interface ServerOverview {
  node: string;
  broker: number;
  brokers: BrokerSummary[];
  topics: number;
  partitions: number;
  records: number;
  bytes: number;
  appended: number;
  commits: number;
  open_transactions: number;
  routers: number;
  tiers: TierSizes;
  refusal: string | null;
  now_ms: number;
  version: string;
  uptime_ms: number;
  doors: Record<string, string>;
  lake_drivers: number;
  disk: DiskSpace | null;
  alerts: Alert[];
  performance: Performance;
}

export interface ServerSample {
  at_ms: number;
  appended: number;
  http_requests: number;
  kafka_requests: number;
  http_write_ms: number | null;
  kafka_write_ms: number | null;
  kafka_write_p99_ms: number | null;
}

export interface SettingDescription {
  name: string;
  kind: string;
  default: string;
  help: string;
  inert: boolean;
  fixed: boolean;
}

export interface SettingDescriptions {
  settings: SettingDescription[];
  performance: Performance;
}

export interface SettingsBody {
  create?: boolean;
  partitions?: number;
  config?: TopicConfigBody;
  settings?: Record<string, string>;
}

export interface SettleBody {
  node: string;
  seqs: number[];
  lease_ids?: string[];
}

export interface SinkAborted {
  aborted: boolean;
}

export interface SinkAttempt {
  attempt: string;
  producer: number;
  epoch: number;
}

export interface SinkCommit {
  committed: boolean;
  repeated: boolean;
}

export interface SinkCommitBody {
  query: string;
  run: string;
  batch: number;
  attempts: SinkAttempt[];
  lasting?: boolean;
}

export interface SinkExtended {
  extended: boolean;
}

export interface SinkRunBody {
  query: string;
  run: string;
}

export interface SinkTask {
  committed: boolean;
  producer: number;
  epoch: number;
}

export interface SinkTaskBody {
  query: string;
  run: string;
  batch: number;
  attempt: string;
  timeout_ms?: number;
  lasting?: boolean;
}

export interface Sources {
  base: number;
  end: number;
  wal: WalExtents[];
  parts: Part[];
  store: string;
  leave_out: [number, number][];
  lost: [number, number, string][];
  unreachable: [number, number][];
}

export interface SourcesBody {
  topic: string;
  from: number;
  partition?: number;
  to?: number;
}

export interface SqlBody {
  query: string;
  limit?: number;
  timeout_ms?: number;
}

export interface SqlColumn {
  name: string;
  type: string;
}

export interface SqlResult {
  columns: SqlColumn[];
  rows: unknown[][];
  truncated: boolean;
}

export interface StartPosition {
  from_seq?: number;
  tail?: boolean;
  partition?: number;
  from?: Record<string, number>;
}

export interface StorageMap {
  objects: WalObject[];
  objects_total: number;
  parts: PartRow[];
  parts_total: number;
  garbage: number;
  store: string;
  repacked: RepackedRow[];
  repacked_total: number;
  performance: Performance;
}

export type StoredPiece = [start: number, length: number, key: string, at: number];

export interface StoredRange {
  topic: string;
  partition: number;
  base: number;
  end: number;
  bytes: number;
  live: boolean;
}

export interface SubscriptionReport {
  type: "exclusive" | "shared" | "failover" | "key_shared" | null;
  consumers: number;
  unacked: number;
}

export interface TableBody {
  enabled?: boolean;
  schema?: unknown;
  delta?: string;
  iceberg?: string;
}

export interface TableCommitRequest {
  namespace: string;
  name: string;
  expected: string;
  changes?: PartChange[];
  requirements?: Record<string, unknown>[];
  updates?: Record<string, unknown>[];
}

export interface TableCommitResults {
  results: TableCommitted[];
}

export interface TableCommitsBody {
  commits: TableCommitRequest[];
}

export interface TableCommitted {
  location?: string;
  error?: ErrorBody;
}

export interface TablePartition {
  partition: number;
  end: number;
  materialised_to: number;
  published_to: number;
  lag_records: number;
}

export interface TableStatus {
  enabled: boolean;
  topic: string;
  table: string;
  location: string;
  columns: Column[];
  delta: string;
  iceberg: string;
  partitions: TablePartition[];
  lag_records: number;
  snapshots: number;
  snapshot_id: number | null;
  records: number;
  files: number;
  file_bytes: number;
  errors: number;
  errors_table: string;
  problem: string;
  subject: string;
  performance: Performance;
}

export interface TableWork {
  namespace: string;
  name: string;
  kind: "records" | "errors" | "view";
  topic: string;
  table_id: string;
  location: string;
  store: string;
  store_url: string;
  columns: string;
  offsets: Record<string, number>;
  changes: PendingChange[];
  expire: boolean;
  more: boolean;
  copy: string;
  erased: number[] | null;
}

export interface TableWorkPage {
  tables: TableWork[];
  problems: Record<string, string>;
}

export interface TablesSettled {
  problems: Record<string, string>;
}

export interface Task {
  kind: "materialise" | "rewrite" | "merge" | "compact";
  topic: string;
  topic_id: string;
  partition: number;
  stream: number;
  token: number;
  deadline_ms: number;
  generation: number;
  sources: Sources;
  prefix: string;
  log_append_time: boolean;
  schema: string;
  compact_before_ms: number;
  tombstones_before_ms: number;
}

export interface TierSizes {
  memory_bytes: number;
  memory_bytes_max: number;
  wal_objects: number;
  wal_bytes: number;
  parquet_files: number;
  parquet_bytes: number;
  parquet_records: number;
  garbage_files: number;
  cold_objects: number;
  cold_bytes: number;
  repacked_files: number;
  repacked_bytes: number;
}

export interface TopicConfigBody {
  type?: "log" | "queue";
  ttl_ms?: number;
  cap_records?: number;
  cap_bytes?: number;
  discard?: "old" | "reject";
  durable?: boolean;
  durability?: "ephemeral" | "memory" | "disk" | "fsync";
  priority?: number;
  auto_priority?: boolean;
  auto_create?: boolean;
  idempotency_window_ms?: number;
  dedupe_node?: boolean;
  lease_ms?: number;
  claim_jitter_ms?: number;
  max_deliveries?: number;
  dead_letter?: string;
  leases_durable?: boolean;
}

export interface TopicConfigResponse {
  type: "log" | "queue";
  ttl_ms: number;
  cap_records: number;
  cap_bytes: number;
  discard: "old" | "reject";
  durable: boolean;
  durability: "ephemeral" | "memory" | "disk" | "fsync";
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

export interface TopicConfigured {
  topic: string;
  created: boolean;
  config: TopicConfigResponse;
  performance: Performance;
}

export interface TopicConsumer {
  group: string;
  state: string;
  kind: string;
  lag: number;
  partitions: ConsumerPartition[];
}

export interface TopicConsumers {
  topic: string;
  consumers: TopicConsumer[];
  performance: Performance;
}

export interface TopicDeleted {
  topic: string;
  head_seq: number;
  reason: "deleted";
}

export interface TopicDeletion {
  topic: string;
  deleted: boolean;
  routers_removed: string[];
  performance: Performance;
}

export interface TopicDescription {
  topic: string;
  type: "log" | "queue";
  head_seq: number;
  earliest_seq: number;
  next_seq: number;
  count: number;
  bytes: number;
  config: TopicConfigResponse;
  effective_priority: number;
  last_write_ts: number | null;
  last_read_ts: number | null;
  performance: Performance;
  queue?: QueueStats;
  partitions?: PartitionCounts[];
}

export interface TopicFailure {
  topic: string;
  error: string;
  failures: number;
  at_ms: number;
}

export interface TopicHistory {
  topic: string;
  every_ms: number;
  samples: TopicSample[];
  performance: Performance;
}

export interface TopicList {
  topics: TopicListing[];
  performance: Performance;
  next_cursor?: string;
}

export interface TopicListing {
  topic: string;
  head_seq: number;
  earliest_seq: number;
  count: number;
  bytes: number;
  durable: boolean;
  effective_priority: number;
}

export interface TopicPositions {
  topic: string;
  id: string;
  type: "log" | "queue";
  timestamp_type: "CreateTime" | "LogAppendTime";
  max_batch_bytes: number;
  partitions_total: number;
  partitions: PartitionPosition[];
}

export interface TopicProgress {
  topic: string;
  topic_id: string;
  wanted: boolean;
  partitions: PartitionProgress[];
  lag_records: number;
  file_bytes: number;
  problem: string;
}

export interface TopicSample {
  at_ms: number;
  records: number;
  bytes: number;
}

export interface TopicSettings {
  topic: string;
  id: string;
  partitions: PartitionDescription[];
  settings: Record<string, string>;
  performance: Performance;
}

export interface TopicSummaries {
  topics: TopicSummary[];
  total: number;
  performance: Performance;
}

export interface TopicSummary {
  topic: string;
  type: "log" | "queue";
  durability: "ephemeral" | "memory" | "disk" | "fsync";
  partitions: number;
  records: number;
  bytes: number;
  end: number;
  last_write_ms: number | null;
  table: boolean;
  recent: number[];
}

export interface TransactionAborted {
  transaction: string;
  aborted: boolean;
  performance: Performance;
}

export interface TransactionCommitted {
  transaction: string;
  repeated: boolean;
  written: TransactionPlace[];
  performance: Performance;
}

export interface TransactionDescription {
  transaction: string;
  phase: string;
  producer: number;
  epoch: number;
  timeout_ms: number;
  started_ms: number | null;
  open_ms: number;
  hanging: boolean;
  partitions: TransactionPartitions[];
}

export interface TransactionGroupOffsets {
  offsets: GroupPosition[];
  member_id?: string;
  epoch?: number;
  group: string;
}

export interface TransactionList {
  transactions: TransactionDescription[];
  performance: Performance;
}

export interface TransactionPartitions {
  topic: string;
  partitions: number[];
}

export interface TransactionPlace {
  topic: string;
  partition: number;
  first_seq: number;
  last_seq: number;
}

export interface TransactionRecord {
  data?: unknown;
  $raw?: string;
  tag?: string;
  $key?: string;
  headers?: ([string, string | null])[];
  timestamp_ms?: number;
}

export interface TransactionWrite {
  topic: string;
  records: TransactionRecord[];
  partition?: number;
}

export interface UserBody {
  password?: string;
}

export interface UserChanged {
  user: string;
  performance: Performance;
  password: string | null;
}

export interface UserDeleted {
  user: string;
  deleted: boolean;
  performance: Performance;
}

export interface UserDescription {
  user: string;
  mechanisms: string[];
}

export interface UserList {
  users: UserDescription[];
  performance: Performance;
}

export interface WalExtents {
  url: string;
  rows: string;
  shift: number;
  timestamp_ms: number | null;
  first: number;
  last: number;
  pieces: StoredPiece[];
}

export interface WalObject {
  number: number;
  bytes: number;
  sealed: boolean;
  commits: number;
  ranges: StoredRange[];
  ranges_total: number;
  tier: "disk" | "both" | "store";
}

export interface WatchBody {
  topics: Record<string, StartPosition>;
  node?: string | string[];
  limit?: number;
  max_batch_bytes?: number;
  heartbeat_ms?: number;
  include_meta?: boolean;
  include_tags?: boolean;
  include_data?: boolean;
  include_trace?: boolean;
  include_headers?: boolean;
}

export interface WatchStarted {
  wid: string;
  stream_url: string;
  session_ttl_ms: number;
  topics: Record<string, WatchedTopic>;
  performance: Performance;
}

export interface WatchedPartition {
  from_seq: number;
  head_seq: number;
  earliest_seq: number;
}

export interface WatchedTopic {
  from_seq: number;
  head_seq: number;
  earliest_seq: number;
  partitions?: Record<string, WatchedPartition>;
}

export interface WriteBody {
  records: RecordBody[];
  node?: string;
  idempotency_key?: string;
  create?: boolean;
  config?: TopicConfigBody;
}

export interface WriteResult {
  topic: string;
  first_seq: number;
  last_seq: number;
  head_seq: number;
  count: number;
  created: boolean;
  deduped: boolean;
  performance: Performance;
  seqs?: number[];
  partition?: number;
  partitions?: number[];
}
