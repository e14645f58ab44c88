"""Every route of the HTTP contract: method, path, rights, request and response.

The HTTP door binds a handler to each route, the OpenAPI document describes them, and clients call them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec

from mainstem.api import (
    catalog,
    erasures,
    groups,
    history,
    lake,
    namespaces,
    queues,
    rates,
    records,
    routers,
    schemas,
    security,
    server,
    sinks,
    sql,
    topics,
)
from mainstem.api.access import Operation
from mainstem.api.base import ErrorEvent
from mainstem.api.route import (
    ARROW,
    EVENTS,
    HTML,
    JSON,
    OCTETS,
    REGISTRY_JSON,
    TEXT,
    Body,
    Query,
    Route,
    Scope,
)

T = TypeVar("T")

_CREATED_OR_DONE = (201, 200)
_PARTITION = Query("partition", "integer", "All partitions unless given.")
_PAGE = (
    Query("page_size", "integer", "1 to 1000, 100 unless given."),
    Query("cursor", "string", "next_cursor of the page before."),
)

# Topics

LIST_TOPICS = Route(
    "GET",
    "/v0/topics",
    topics.TopicList,
    Scope.READ,
    query=(
        Query("prefix", "string", "Only topics whose name begins with this."),
        *_PAGE,
        Query("touch", "boolean", "Counts as a read of every topic listed; false unless given."),
    ),
)
GET_TOPIC = Route(
    "GET",
    "/v0/topics/{topic}",
    topics.TopicDescription,
    Scope.READ,
    query=(Query("touch", "boolean", "Counts as a read; true unless given."), _PARTITION),
)
PUT_TOPIC = Route(
    "PUT",
    "/v0/topics/{topic}",
    topics.TopicConfigured,
    Scope.ADMIN,
    Body.OPTIONAL,
    topics.TopicConfigBody,
    _CREATED_OR_DONE,
)
DELETE_TOPIC = Route(
    "DELETE",
    "/v0/topics/{topic}",
    topics.TopicDeletion,
    Scope.DELETE,
    query=(Query("if_empty", "boolean", "Only if it holds no records."),),
)
POST_RECORDS = Route(
    "POST",
    "/v0/topics/{topic}",
    records.WriteResult,
    Scope.WRITE,
    Body.JSON,
    records.WriteBody,
    _CREATED_OR_DONE,
    query=(
        Query("return_seqs", "boolean", "List every sequence number; true unless given."),
        Query("partition", "integer", "By key unless given, as Kafka's clients choose it."),
    ),
    carries=True,
)
POST_DIFF = Route(
    "POST",
    "/v0/topics/{topic}/diff",
    records.DiffResult,
    Scope.READ,
    Body.OPTIONAL,
    records.DiffBody,
    query=(_PARTITION,),
    variants=(records.PartitionedDiffResult,),
)
POST_DELETE = Route(
    "POST",
    "/v0/topics/{topic}/delete",
    records.DeleteResult,
    Scope.DELETE,
    Body.JSON,
    records.DeleteBody,
    query=(_PARTITION,),
)

# Erasures

POST_ERASE = Route(
    "POST",
    "/v0/topics/{topic}/erase",
    erasures.ErasureView,
    Scope.DELETE,
    Body.JSON,
    erasures.EraseBody,
    (202,),
)
LIST_ERASURES = Route("GET", "/v0/erasures", erasures.ErasureList, Scope.ADMIN, cluster=Operation.ALTER)
GET_ERASURE = Route("GET", "/v0/erasures/{id}", erasures.ErasureView, Scope.DELETE)

# Queues

POST_CLAIM = Route(
    "POST",
    "/v0/topics/{topic}/claim",
    queues.ClaimResponse,
    Scope.READ | Scope.WRITE,
    Body.NEEDED,
    queues.ClaimBody,
)
POST_ACK = Route(
    "POST", "/v0/topics/{topic}/ack", queues.AckResult, Scope.WRITE, Body.JSON, queues.SettleBody
)
POST_NACK = Route(
    "POST", "/v0/topics/{topic}/nack", queues.NackResult, Scope.WRITE, Body.JSON, queues.NackBody
)
POST_EXTEND = Route(
    "POST", "/v0/topics/{topic}/extend", queues.ExtendResult, Scope.WRITE, Body.JSON, queues.ExtendJobsBody
)
GET_WORK: Route[bytes] = Route(
    "GET",
    "/v0/topics/{topic}/work",
    None,
    Scope.READ | Scope.WRITE,
    media=(EVENTS,),
    events={"job": queues.JobDelivery, "error": ErrorEvent},
)

# Offsets and batches

GET_OFFSETS = Route(
    "GET",
    "/v0/topics/{topic}/offsets",
    topics.TopicPositions,
    Scope.READ,
    query=(
        Query("at", "string", "earliest, latest, or milliseconds since 1970; latest unless given."),
        Query("partition", "integer", "All of them unless given."),
        Query("isolation", "string", "read_committed unless given, or read_uncommitted: where the end is."),
    ),
)
GET_BATCHES: Route[bytes] = Route("GET", "/v0/topics/{topic}/batches", None, Scope.READ, media=(OCTETS,))
POST_BACKUP = Route(
    "POST",
    "/v0/backup",
    server.BackupReport,
    Scope.ADMIN,
    Body.JSON,
    server.BackupBody,
    cluster=Operation.ALTER,
)

# The lake

POST_PLAN = Route(
    "POST",
    "/v0/lake/plan",
    lake.Plan,
    Scope.ADMIN,
    Body.JSON,
    lake.PlanRequest,
    cluster=Operation.ALTER,
    carries=True,
)
POST_PUBLISH = Route(
    "POST",
    "/v0/lake/publish",
    lake.PublishResults,
    Scope.ADMIN,
    Body.JSON,
    lake.PublicationsBody,
    cluster=Operation.ALTER,
    carries=True,
)
EXTEND_TASK = Route(
    "POST",
    "/v0/lake/extend",
    lake.LeaseExtended,
    Scope.ADMIN,
    Body.JSON,
    lake.ExtendLeaseBody,
    cluster=Operation.ALTER,
)
RELEASE_TASK = Route(
    "POST",
    "/v0/lake/release",
    lake.LeaseReleased,
    Scope.ADMIN,
    Body.JSON,
    lake.ReleaseBody,
    cluster=Operation.ALTER,
)
POST_COLLECT = Route(
    "POST", "/v0/lake/collect", lake.CollectResult, Scope.ADMIN, Body.OPTIONAL, cluster=Operation.ALTER
)
REPORT_DRIVER = Route(
    "POST",
    "/v0/lake/report",
    lake.DriverReportAccepted,
    Scope.ADMIN,
    Body.JSON,
    lake.DriverReport,
    cluster=Operation.ALTER,
    carries=True,
)
GET_LAKE_STATUS = Route("GET", "/v0/lake/status", lake.LakeStatus, Scope.READ)
LIST_PIPELINES = Route("GET", "/v0/pipelines", server.PipelineList, Scope.READ)
REPORT_PIPELINE = Route(
    "POST",
    "/v0/pipelines/report",
    server.PipelineReportAccepted,
    Scope.WRITE,
    Body.JSON,
    server.PipelineReport,
    carries=True,
)
POST_SOURCES = Route(
    "POST",
    "/v0/lake/sources",
    lake.Sources,
    Scope.READ,
    Body.JSON,
    lake.SourcesBody,
    carries=True,
)

# Sinks

POST_BATCHES = Route(
    "POST",
    "/v0/topics/{topic}/batches",
    sinks.BatchAppended,
    Scope.WRITE,
    Body.BYTES,
    query=(_PARTITION,),
    carries=True,
)
BEGIN_SINK_TASK = Route("POST", "/v0/sinks/tasks", sinks.SinkTask, Scope.WRITE, Body.JSON, sinks.SinkTaskBody)
COMMIT_SINK = Route(
    "POST",
    "/v0/sinks/commit",
    sinks.SinkCommit,
    Scope.WRITE,
    Body.JSON,
    sinks.SinkCommitBody,
    carries=True,
)
EXTEND_SINK = Route("POST", "/v0/sinks/extend", sinks.SinkExtended, Scope.WRITE, Body.JSON, sinks.SinkRunBody)
ABORT_SINK = Route("POST", "/v0/sinks/abort", sinks.SinkAborted, Scope.WRITE, Body.JSON, sinks.SinkRunBody)

# Groups and settings

COMMIT_OFFSETS = Route(
    "POST",
    "/v0/groups/{group}/offsets",
    groups.GroupOffsetsCommitted,
    Scope.READ,
    Body.JSON,
    groups.GroupPositionsBody,
)
GET_SETTINGS = Route("GET", "/v0/topics/{topic}/settings", topics.TopicSettings, Scope.READ)
LIST_SETTINGS = Route("GET", "/v0/topic-settings", topics.SettingDescriptions, Scope.READ)
PATCH_SETTINGS = Route(
    "PATCH",
    "/v0/topics/{topic}/settings",
    topics.TopicSettings,
    Scope.ADMIN,
    Body.JSON,
    topics.SettingsBody,
    _CREATED_OR_DONE,
)
POST_RAW = Route(
    "POST",
    "/v0/topics/{topic}/raw",
    records.WriteResult,
    Scope.WRITE,
    Body.BYTES,
    statuses=_CREATED_OR_DONE,
    query=(
        _PARTITION,
        Query("create", "boolean", "Create the topic if it does not exist; true unless given."),
        Query("delay_ms", "integer", "Of jobs: they are not handed out before."),
        Query("ttl_ms", "integer", "The records are deleted after."),
    ),
    carries=True,
)
LIST_GROUPS = Route("GET", "/v0/groups", groups.GroupList, Scope.READ)
GET_GROUP = Route(
    "GET",
    "/v0/groups/{group}",
    groups.GroupDescription,
    Scope.READ,
    query=(
        Query(
            "redirect",
            "boolean",
            "With false, a broker that does not know the members answers without them instead of redirecting.",
        ),
    ),
)
GET_GROUP_HISTORY = Route("GET", "/v0/groups/{group}/history", history.GroupHistory, Scope.READ)
DELETE_GROUP = Route("DELETE", "/v0/groups/{group}", groups.GroupDeletion, Scope.ADMIN)
RESET_GROUP = Route(
    "POST", "/v0/groups/{group}/reset", groups.ResetResult, Scope.ADMIN, Body.JSON, groups.ResetBody
)
JOIN_GROUP = Route(
    "POST", "/v0/groups/{group}/join", groups.GroupMembership, Scope.READ, Body.JSON, groups.JoinBody
)
HEARTBEAT_GROUP = Route(
    "POST",
    "/v0/groups/{group}/heartbeat",
    groups.GroupMembership,
    Scope.READ,
    Body.JSON,
    groups.HeartbeatBody,
)
LEAVE_GROUP = Route(
    "POST", "/v0/groups/{group}/leave", groups.GroupLeft, Scope.READ, Body.JSON, groups.LeaveBody
)

# Rates

_ENTITY = (
    Query("user", "string", "The user that the rate limits."),
    Query("client", "string", "The client id that it limits."),
    Query("group", "string", "The consumer group that it limits."),
    Query("namespace", "string", "The namespace that it limits."),
    Query("topic", "string", "The topic that it limits."),
)
LIST_RATES = Route("GET", "/v0/rates", rates.RateList, Scope.ADMIN, cluster=Operation.DESCRIBE_CONFIGS)
PUT_RATE = Route(
    "PUT",
    "/v0/rates",
    rates.RateChanged,
    Scope.ADMIN,
    Body.JSON,
    rates.RateBody,
    cluster=Operation.ALTER_CONFIGS,
)
DELETE_RATE = Route(
    "DELETE", "/v0/rates", rates.RateChanged, Scope.ADMIN, query=_ENTITY, cluster=Operation.ALTER_CONFIGS
)

# For people and their tools

GET_OVERVIEW = Route("GET", "/v0/overview", server.ServerOverview, Scope.READ)
GET_CLIENTS = Route("GET", "/v0/overview/clients", server.ClientList, Scope.ADMIN, cluster=Operation.DESCRIBE)
GET_TOPIC_SUMMARIES = Route(
    "GET",
    "/v0/overview/topics",
    topics.TopicSummaries,
    Scope.READ,
    query=(
        Query("search", "string", "Only topics whose name contains this."),
        Query("type", "string", "log or queue; both unless given."),
        Query("sort", "string", "name, records, bytes, partitions or written; name unless given."),
        Query("descending", "boolean", "The other way round; false unless given."),
        Query("skip", "integer", "How many rows to leave out at the beginning."),
        Query("limit", "integer", "1 to 1000, 100 unless given."),
    ),
)
GET_SERVER_HISTORY = Route(
    "GET",
    "/v0/overview/history",
    history.ServerHistory,
    Scope.READ,
    query=(Query("after", "integer", "Only samples after this time, in ms since 1970."),),
)
GET_TOPIC_HISTORY = Route("GET", "/v0/topics/{topic}/history", history.TopicHistory, Scope.READ)
GET_KEY = Route("GET", "/v0/key", server.KeyRights)
GET_STORAGE = Route("GET", "/v0/storage", server.StorageMap, Scope.READ)
GET_TOPIC_STORAGE = Route("GET", "/v0/topics/{topic}/storage", server.StorageMap, Scope.READ)
GET_MESSAGES = Route(
    "GET",
    "/v0/topics/{topic}/messages",
    topics.MessageList,
    Scope.READ,
    query=(
        _PARTITION,
        Query("from", "integer", "The first offset to look at."),
        Query("before", "integer", "Instead: look before this offset, at the newest unless given."),
        Query("limit", "integer", "1 to 500, 50 unless given."),
        Query("key", "string", "Only records whose key contains this."),
        Query("value", "string", "Only records whose value contains this."),
        Query("header", "string", "Only records with a header that contains this, as name=content."),
        Query(
            "json",
            "string",
            "Only records whose JSON value meets a condition: `$.city = Rome`, `$.total >= 10`, `$.error`.",
        ),
        Query("since", "integer", "Only records of this time or later, in ms since 1970."),
        Query("until", "integer", "Only records before this time, in ms since 1970."),
        Query("value_bytes", "integer", "Cut longer values off here; 16384 unless given."),
    ),
)
GET_CONSUMERS = Route("GET", "/v0/topics/{topic}/consumers", topics.TopicConsumers, Scope.READ)
GET_LEASES = Route("GET", "/v0/topics/{topic}/leases", queues.LeaseList, Scope.READ, query=(_PARTITION,))
POST_REQUEUE = Route(
    "POST",
    "/v0/topics/{topic}/requeue",
    queues.RequeueResult,
    Scope.WRITE | Scope.DELETE,
    Body.JSON,
    queues.RequeueBody,
)
COMMIT_TRANSACTION = Route(
    "POST",
    "/v0/transaction",
    groups.TransactionCommitted,
    Scope.WRITE,
    Body.JSON,
    groups.AtomicWriteBody,
    carries=True,
)
LIST_TRANSACTIONS = Route("GET", "/v0/transactions", groups.TransactionList, Scope.READ)
ABORT_TRANSACTION = Route(
    "POST", "/v0/transactions/{transaction}/abort", groups.TransactionAborted, Scope.ADMIN
)

# Routers

LIST_ROUTERS = Route(
    "GET",
    "/v0/routers",
    routers.RouterList,
    Scope.READ,
    query=(
        Query("prefix", "string", "Only routers whose name begins with this."),
        Query("source", "string", "Only routers from this topic."),
        Query("dest", "string", "Only routers to this topic."),
        *_PAGE,
    ),
)
GET_ROUTER = Route("GET", "/v0/routers/{router}", routers.RouterDescription, Scope.READ)
PUT_ROUTER = Route(
    "PUT",
    "/v0/routers/{router}",
    routers.RouterConfigured,
    Scope.ADMIN,
    Body.JSON,
    routers.RouterBody,
    _CREATED_OR_DONE,
)
DELETE_ROUTER = Route("DELETE", "/v0/routers/{router}", routers.RouterDeletion, Scope.DELETE)

# Watching

POST_WATCH = Route("POST", "/v0/watch", records.WatchStarted, Scope.READ, Body.JSON, records.WatchBody)
GET_WATCH: Route[bytes] = Route(
    "GET",
    "/v0/watch/{wid}",
    None,
    Scope.READ,
    media=(EVENTS,),
    events={**records.WATCH_EVENTS, "error": ErrorEvent},
)
GET_WEBSOCKET: Route[bytes] = Route("GET", "/v0/ws", None, statuses=(101,), media=())
GET_HEALTH = Route("GET", "/v0/health", server.Health, probe=True)
GET_METRICS = Route("GET", "/v0/metrics", dict[str, Any], Scope.READ, media=(TEXT, JSON))

# Tables

PUT_TABLE = Route(
    "PUT", "/v0/topics/{topic}/table", lake.TableStatus, Scope.ADMIN, Body.OPTIONAL, lake.TableBody
)
POST_SQL = Route("POST", "/v0/sql", sql.SqlResult, Scope.READ, Body.JSON, sql.SqlBody, media=(JSON, ARROW))
GET_TABLE = Route("GET", "/v0/topics/{topic}/table", lake.TableStatus, Scope.READ)
DELETE_TABLE = Route("DELETE", "/v0/topics/{topic}/table", lake.TableStatus, Scope.ADMIN)
GET_TABLE_WORK = Route("GET", "/v0/lake/tables", lake.TableWorkPage, Scope.ADMIN, cluster=Operation.ALTER)
SETTLE_TABLES = Route(
    "POST", "/v0/lake/tables/settle", lake.TablesSettled, Scope.ADMIN, Body.OPTIONAL, cluster=Operation.ALTER
)
COMMIT_TABLES = Route(
    "POST",
    "/v0/lake/tables",
    lake.TableCommitResults,
    Scope.ADMIN,
    Body.JSON,
    lake.TableCommitsBody,
    cluster=Operation.ALTER,
    carries=True,
)

# The Iceberg REST catalog

_NAMESPACE = "/iceberg/v1/namespaces/{namespace}"
_DONE = (204,)

POST_OAUTH_TOKEN = Route(
    "POST", "/iceberg/v1/oauth/tokens", catalog.TokenIssued, body=Body.FORM, public=True, media=(JSON,)
)
SIGN_S3_REQUEST = Route(
    "POST", "/iceberg/v1/aws/s3/sign", catalog.SignedRequest, Scope.READ, Body.JSON, catalog.SignBody
)
GET_CATALOG_CONFIG = Route("GET", "/iceberg/v1/config", catalog.CatalogConfig, Scope.READ)
LIST_NAMESPACES = Route("GET", "/iceberg/v1/namespaces", catalog.NamespaceList, Scope.READ)
CREATE_NAMESPACE = Route(
    "POST",
    "/iceberg/v1/namespaces",
    catalog.NamespaceDescription,
    Scope.ADMIN,
    Body.JSON,
    catalog.NamespaceBody,
)
GET_NAMESPACE = Route("GET", _NAMESPACE, catalog.NamespaceDescription, Scope.READ)
HEAD_NAMESPACE: Route[bytes] = Route("HEAD", _NAMESPACE, None, Scope.READ, statuses=_DONE)
DROP_NAMESPACE: Route[bytes] = Route("DELETE", _NAMESPACE, None, Scope.ADMIN, statuses=_DONE)
POST_PROPERTIES = Route(
    "POST",
    f"{_NAMESPACE}/properties",
    catalog.PropertiesChanged,
    Scope.ADMIN,
    Body.JSON,
    catalog.PropertiesBody,
)
LIST_CATALOG_TABLES = Route("GET", f"{_NAMESPACE}/tables", catalog.TableList, Scope.READ)
CREATE_CATALOG_TABLE = Route("POST", f"{_NAMESPACE}/tables", catalog.TableLoaded, Scope.ADMIN, Body.JSON)
REGISTER_CATALOG_TABLE = Route("POST", f"{_NAMESPACE}/register", catalog.TableLoaded, Scope.ADMIN, Body.JSON)
GET_CATALOG_TABLE = Route("GET", f"{_NAMESPACE}/tables/{{table}}", catalog.TableLoaded, Scope.READ)
HEAD_CATALOG_TABLE: Route[bytes] = Route(
    "HEAD", f"{_NAMESPACE}/tables/{{table}}", None, Scope.READ, statuses=_DONE
)
DROP_CATALOG_TABLE: Route[bytes] = Route(
    "DELETE", f"{_NAMESPACE}/tables/{{table}}", None, Scope.ADMIN, statuses=_DONE
)
COMMIT_CATALOG_TABLE = Route(
    "POST",
    f"{_NAMESPACE}/tables/{{table}}",
    catalog.TableLoaded,
    Scope.ADMIN,
    Body.JSON,
    catalog.CommitBody,
)
RENAME_CATALOG_TABLE: Route[bytes] = Route(
    "POST", "/iceberg/v1/tables/rename", None, Scope.ADMIN, Body.JSON, catalog.RenameBody, _DONE
)
COMMIT_CATALOG: Route[bytes] = Route(
    "POST", "/iceberg/v1/transactions/commit", None, Scope.ADMIN, Body.JSON, catalog.TransactionBody, _DONE
)
_VIEW = f"{_NAMESPACE}/views/{{table}}"
LIST_VIEWS = Route("GET", f"{_NAMESPACE}/views", catalog.TableList, Scope.READ)
CREATE_VIEW = Route("POST", f"{_NAMESPACE}/views", catalog.ViewLoaded, Scope.ADMIN, Body.JSON)
GET_VIEW = Route("GET", _VIEW, catalog.ViewLoaded, Scope.READ)
HEAD_VIEW: Route[bytes] = Route("HEAD", _VIEW, None, Scope.READ, statuses=_DONE)
COMMIT_VIEW = Route("POST", _VIEW, catalog.ViewLoaded, Scope.ADMIN, Body.JSON, catalog.CommitBody)
DROP_VIEW: Route[bytes] = Route("DELETE", _VIEW, None, Scope.ADMIN, statuses=_DONE)
RENAME_VIEW: Route[bytes] = Route(
    "POST", "/iceberg/v1/views/rename", None, Scope.ADMIN, Body.JSON, catalog.RenameBody, _DONE
)

# Namespaces

LIST_NAMESPACES_OF_TOPICS = Route(
    "GET", "/v0/namespaces", namespaces.NamespaceReports, Scope.ADMIN, cluster=Operation.DESCRIBE
)
GET_NAMESPACE_POLICIES = Route(
    "GET", "/v0/namespaces/{name}", namespaces.NamespaceReport, Scope.ADMIN, cluster=Operation.DESCRIBE
)
PUT_NAMESPACE = Route(
    "PUT",
    "/v0/namespaces/{name}",
    namespaces.NamespaceConfigured,
    Scope.ADMIN,
    Body.OPTIONAL,
    namespaces.NamespaceDescriptionBody,
    _CREATED_OR_DONE,
    cluster=Operation.ALTER,
)
DELETE_NAMESPACE = Route(
    "DELETE",
    "/v0/namespaces/{name}",
    namespaces.NamespaceDeletion,
    Scope.ADMIN,
    query=(Query("force", "boolean", "Delete its topics and their records too."),),
    cluster=Operation.ALTER,
)

# API keys, users and access rules

_READS_ACCESS, _CHANGES_ACCESS = Operation.DESCRIBE, Operation.ALTER

ISSUE_S3_CREDENTIALS = Route(
    "POST",
    "/v0/s3/credentials",
    security.S3CredentialsIssued,
    body=Body.OPTIONAL,
    request=security.S3CredentialsBody,
)
LIST_KEYS = Route("GET", "/v0/keys", security.KeyList, Scope.ADMIN, cluster=_READS_ACCESS)
CREATE_KEY = Route(
    "POST",
    "/v0/keys",
    security.KeyCreated,
    Scope.ADMIN,
    Body.JSON,
    security.KeyBody,
    (201,),
    cluster=_CHANGES_ACCESS,
)
ROTATE_KEY = Route("POST", "/v0/keys/{key}/rotate", security.KeyCreated, Scope.ADMIN, cluster=_CHANGES_ACCESS)
REVOKE_KEY = Route("DELETE", "/v0/keys/{key}", security.KeyRevoked, Scope.ADMIN, cluster=_CHANGES_ACCESS)
LIST_USERS = Route("GET", "/v0/users", security.UserList, Scope.ADMIN, cluster=_READS_ACCESS)
PUT_USER = Route(
    "PUT",
    "/v0/users/{user}",
    security.UserChanged,
    Scope.ADMIN,
    Body.JSON,
    security.UserBody,
    cluster=_CHANGES_ACCESS,
)
DELETE_USER = Route("DELETE", "/v0/users/{user}", security.UserDeleted, Scope.ADMIN, cluster=_CHANGES_ACCESS)
LIST_RULES = Route("GET", "/v0/acls", security.RuleList, Scope.ADMIN, cluster=_READS_ACCESS)
ADD_RULES = Route(
    "POST",
    "/v0/acls",
    security.RuleList,
    Scope.ADMIN,
    Body.JSON,
    security.RulesBody,
    cluster=_CHANGES_ACCESS,
)
DELETE_RULES = Route(
    "POST",
    "/v0/acls/delete",
    security.RuleList,
    Scope.ADMIN,
    Body.JSON,
    security.RulesBody,
    cluster=_CHANGES_ACCESS,
)

# The schema registry

_AS_REGISTRY = (REGISTRY_JSON,)
_DELETED = Query("deleted", "boolean", "Softly deleted ones too.")
_DELETED_ONLY = Query("deletedOnly", "boolean", "Softly deleted ones alone.")
_PERMANENT = Query("permanent", "boolean", "For good, after it was deleted softly.")
_NORMALIZE = Query("normalize", "boolean", "Compare and store the schema in its normal form.")
_FORMAT = Query("format", "string", "serialized: Protobuf schemas as descriptors in base64.")
_TO_GLOBAL = Query("defaultToGlobal", "boolean", "Without a setting of its own, the one that holds for it.")
_OF_SUBJECT = Query("subject", "string", "A subject of the context that the id belongs to.")
_FORCE = Query("force", "boolean", "Import although there are schemas.")
_VERBOSE = Query("verbose", "boolean", "Say why it is not compatible.")
_SUBJECT_PREFIX = Query(
    "subjectPrefix", "string", "Only subjects that begin with this; :*: for every context."
)
_WINDOW = (
    Query("offset", "integer", "How many to leave out at the beginning."),
    Query("limit", "integer", "How many to list at most."),
)
_SUBJECT, _SCHEMA_ID = "/subjects/{subject}", "/schemas/ids/{id}"


def _registry(
    method: str,
    path: str,
    response: type[T],
    scope: Scope = Scope.READ,
    request: type[Any] | None = None,
    query: tuple[Query, ...] = (),
    cluster: Operation | None = None,
) -> Route[T]:
    body = Body.NONE if request is None else Body.REGISTRY
    return Route(
        method, path, response, scope, body, request, media=_AS_REGISTRY, query=query, cluster=cluster
    )


LIST_SUBJECTS = _registry(
    "GET", "/subjects", list[str], query=(_SUBJECT_PREFIX, _DELETED, _DELETED_ONLY, *_WINDOW)
)
LOOK_UP_SCHEMA = _registry(
    "POST",
    _SUBJECT,
    schemas.SchemaVersion,
    request=schemas.SchemaBody,
    query=(_NORMALIZE, _DELETED, _FORMAT),
)
DELETE_SUBJECT = _registry("DELETE", _SUBJECT, list[int], Scope.DELETE, query=(_PERMANENT,))
LIST_SCHEMA_VERSIONS = _registry(
    "GET", f"{_SUBJECT}/versions", list[int], query=(_DELETED, _DELETED_ONLY, *_WINDOW)
)
REGISTER_SCHEMA = _registry(
    "POST",
    f"{_SUBJECT}/versions",
    schemas.SchemaVersion,
    Scope.WRITE,
    schemas.SchemaBody,
    (_NORMALIZE, _FORMAT),
)
GET_SCHEMA_VERSION = _registry(
    "GET", f"{_SUBJECT}/versions/{{version}}", schemas.SchemaVersion, query=(_DELETED, _FORMAT)
)
GET_VERSION_TEXT: Route[bytes] = Route(
    "GET",
    f"{_SUBJECT}/versions/{{version}}/schema",
    None,
    Scope.READ,
    media=_AS_REGISTRY,
    query=(_DELETED, _FORMAT),
)
LIST_SCHEMA_REFERRERS = _registry("GET", f"{_SUBJECT}/versions/{{version}}/referencedby", list[int])
DELETE_SCHEMA_VERSION = _registry(
    "DELETE", f"{_SUBJECT}/versions/{{version}}", int, Scope.DELETE, query=(_PERMANENT,)
)
LIST_SCHEMAS = _registry(
    "GET",
    "/schemas",
    list[schemas.SchemaVersion],
    query=(
        _SUBJECT_PREFIX,
        _DELETED,
        Query("latestOnly", "boolean", "The latest version of each subject alone."),
        *_WINDOW,
    ),
)
LIST_SCHEMA_TYPES = _registry("GET", "/schemas/types", list[str])
GET_SCHEMA = _registry(
    "GET",
    _SCHEMA_ID,
    schemas.SchemaText,
    query=(_OF_SUBJECT, _FORMAT, Query("fetchMaxId", "boolean", "With the largest id of the context.")),
)
GET_SCHEMA_TEXT: Route[bytes] = Route(
    "GET", f"{_SCHEMA_ID}/schema", None, Scope.READ, media=_AS_REGISTRY, query=(_OF_SUBJECT, _FORMAT)
)
LIST_ID_SUBJECTS = _registry(
    "GET", f"{_SCHEMA_ID}/subjects", list[str], query=(_OF_SUBJECT, _DELETED, *_WINDOW)
)
LIST_ID_VERSIONS = _registry(
    "GET", f"{_SCHEMA_ID}/versions", list[schemas.SchemaUse], query=(_OF_SUBJECT, _DELETED, *_WINDOW)
)
GET_SCHEMA_BY_GUID = _registry("GET", "/schemas/guids/{guid}", schemas.SchemaText, query=(_FORMAT,))
LIST_GUID_IDS = _registry("GET", "/schemas/guids/{guid}/ids", list[schemas.SchemaContextId])
CHECK_COMPATIBILITY = _registry(
    "POST",
    "/compatibility/subjects/{subject}/versions/{version}",
    schemas.CompatibilityReport,
    request=schemas.SchemaBody,
    query=(_VERBOSE, _NORMALIZE),
)
CHECK_SUBJECT_COMPATIBILITY = _registry(
    "POST",
    "/compatibility/subjects/{subject}/versions",
    schemas.CompatibilityReport,
    request=schemas.SchemaBody,
    query=(_VERBOSE, _NORMALIZE),
)
GET_REGISTRY_CONFIG = _registry("GET", "/config", dict[str, Any], query=(_TO_GLOBAL,))
PUT_REGISTRY_CONFIG = _registry(
    "PUT",
    "/config",
    dict[str, Any],
    Scope.ADMIN,
    schemas.CompatibilityBody,
    cluster=Operation.ALTER_CONFIGS,
)
DELETE_REGISTRY_CONFIG = _registry(
    "DELETE", "/config", dict[str, Any], Scope.ADMIN, cluster=Operation.ALTER_CONFIGS
)
GET_SUBJECT_CONFIG = _registry("GET", "/config/{subject}", dict[str, Any], query=(_TO_GLOBAL,))
PUT_SUBJECT_CONFIG = _registry(
    "PUT", "/config/{subject}", dict[str, Any], Scope.ADMIN, schemas.CompatibilityBody
)
DELETE_SUBJECT_CONFIG = _registry("DELETE", "/config/{subject}", dict[str, Any], Scope.ADMIN)
GET_REGISTRY_MODE = _registry("GET", "/mode", schemas.RegistryMode, query=(_TO_GLOBAL,))
PUT_REGISTRY_MODE = _registry(
    "PUT",
    "/mode",
    schemas.RegistryMode,
    Scope.ADMIN,
    schemas.RegistryMode,
    (_FORCE,),
    cluster=Operation.ALTER_CONFIGS,
)
DELETE_REGISTRY_MODE = _registry(
    "DELETE", "/mode", schemas.RegistryMode, Scope.ADMIN, cluster=Operation.ALTER_CONFIGS
)
GET_SUBJECT_MODE = _registry("GET", "/mode/{subject}", schemas.RegistryMode, query=(_TO_GLOBAL,))
PUT_SUBJECT_MODE = _registry(
    "PUT", "/mode/{subject}", schemas.RegistryMode, Scope.ADMIN, schemas.RegistryMode, (_FORCE,)
)
DELETE_SUBJECT_MODE = _registry("DELETE", "/mode/{subject}", schemas.RegistryMode, Scope.ADMIN)
LIST_CONTEXTS = _registry("GET", "/contexts", list[str], query=_WINDOW)

# Pages and probes

GET_CONSOLE: Route[bytes] = Route("GET", "/", None, media=(HTML,), public=True)
GET_CONSOLE_ASSET: Route[bytes] = Route(
    "GET",
    "/console/assets/{file}",
    None,
    media=("text/javascript", "text/css", "image/svg+xml"),
    public=True,
)
GET_HEALTHZ = Route("GET", "/healthz", server.Health, probe=True)
GET_READY = Route("GET", "/v0/ready", server.Readiness, probe=True)
GET_CLUSTER = Route("GET", "/v0/cluster", server.ClusterView, Scope.READ)
GET_READYZ = Route("GET", "/readyz", server.Readiness, probe=True)
GET_OPENAPI = Route("GET", "/openapi.json", dict[str, Any], probe=True)
GET_DOCS: Route[bytes] = Route("GET", "/docs", None, media=(HTML,), probe=True)

ROUTES: tuple[Route[Any], ...] = tuple(value for value in globals().values() if isinstance(value, Route))


def structs_in(kinds: Iterable[Any]) -> set[type[msgspec.Struct]]:
    """The structs among some types, and those in their fields."""
    found: set[type[msgspec.Struct]] = set()
    waiting = [*kinds]
    while waiting:
        kind = waiting.pop()
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            if kind not in found:
                found.add(kind)
                waiting += get_type_hints(kind).values()
        else:
            waiting += get_args(kind)
    return found
