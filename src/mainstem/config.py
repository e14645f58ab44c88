"""Server settings: the one table that flags, environment variables, file keys and documentation come from.

Precedence: the flag, the `MAINSTEM_…` variable, the TOML file, the default.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar, get_type_hints

from mainstem import limits, values
from mainstem.address import Address, parse_listener, parse_listeners
from mainstem.errors import InvalidConfig

T = TypeVar("T")

ENV_PREFIX = "MAINSTEM_"
FILE_ENV = "MAINSTEM_CONFIG"
FILE_DEFAULT = "mainstem.toml"


@dataclass(frozen=True, slots=True)
class ValueKind(Generic[T]):
    """The text form of a value."""

    metavar: str
    parse: Callable[[str], T]  # raises ValueError, see values.py
    absent: str = ""  # shown for a missing value
    secret: bool = False  # never shown


def _whole(low: int, high: int) -> ValueKind[int]:
    return ValueKind("N", values.whole(low, high))


def _size(low: int, high: int) -> ValueKind[int]:
    return ValueKind("BYTES", values.size(low, high))


def _one_of(*choices: str) -> ValueKind[str]:
    return ValueKind("|".join(choices), values.one_of(*choices))


def _listener_or_off(text: str) -> Address | None:
    return None if text == "off" else parse_listener(text)


def _address_or_off(text: str) -> Address | None:
    return None if text == "off" else Address.parse(text)


def _listeners_or_off(text: str) -> tuple[Address, ...]:
    return () if text == "off" else parse_listeners(text)


_PATH = ValueKind("PATH", values.path)
_LISTENER = ValueKind("HOST:PORT[,namespace=NS]|off", _listener_or_off, absent="off")
_ADDRESS = ValueKind("HOST:PORT|off", _address_or_off, absent="off")
_LISTENERS = ValueKind("HOST:PORT[,namespace=NS];…|off", _listeners_or_off, absent="off")
_ADVERTISED = ValueKind("HOST:PORT", Address.parse)
_NAME = ValueKind("NAME", values.name)
_FLAG = ValueKind("true|false", values.flag)
_SECRET = ValueKind("KEYS", str, secret=True)
_URL = ValueKind("URL", str, secret=True)  # may contain credentials
_URLS = ValueKind("URL,…", str, secret=True)
_MEMBERS = ValueKind("HOST:PORT,…", str)
_WORDS = ValueKind("WORD,…", str)
_NAMES = ValueKind("NAME;…", str)
_TEXT_VALUE = ValueKind("TEXT", str)


_HTTP = Address("127.0.0.1", 4000)
_TEXT = Address("127.0.0.1", 9091)
_KAFKA = Address("127.0.0.1", 9092)
_S3 = Address("127.0.0.1", 4001)
_PULSAR = Address("127.0.0.1", 6650)
# The server starts without these doors if something else listens there.
OPTIONAL_DOORS = frozenset({("s3", _S3), ("pulsar", _PULSAR)})


@dataclass(frozen=True, kw_only=True)
class Config:
    """The table of settings: name, type, text form, help, default."""

    data_dir: Annotated[Path, _PATH, "Directory that holds the log."] = Path("data")
    http: Annotated[Address | None, _LISTENER, "Address of the HTTP door (port 0: any free port)."] = _HTTP
    text: Annotated[Address | None, _LISTENER, "Address of the text door (port 0: any free port)."] = _TEXT
    kafka: Annotated[
        tuple[Address, ...],
        _LISTENERS,
        "Addresses of the Kafka door (port 0: any free port), one for each namespace that has its own.",
    ] = (_KAFKA,)
    s3: Annotated[Address | None, _ADDRESS, "Address of the S3 door (port 0: any free port)."] = _S3
    s3_advertise: Annotated[
        Address | None,
        _ADVERTISED,
        "Address that S3 clients use for this broker; none: the host of their request, and the port of the door.",
    ] = None
    kafka_advertise: Annotated[
        Address | None,
        _ADVERTISED,
        "Address that Kafka clients use for this broker; none: the address that it listens on. A listener can have "
        "its own: HOST:PORT,advertise=HOST:PORT.",
    ] = None
    pulsar: Annotated[Address | None, _LISTENER, "Address of the Pulsar door (port 0: any free port)."] = (
        _PULSAR
    )
    pulsar_advertise: Annotated[
        Address | None,
        _ADVERTISED,
        "Address that Pulsar clients use for this broker; none: the address that it listens on.",
    ] = None
    ports_file: Annotated[
        Path | None, _PATH, "When ready, write a JSON map from each door to its address to this file."
    ] = None
    broker_id: Annotated[
        int | None,
        _whole(0, 2**31 - 1),
        "Id of this broker, unique in its cluster; none: 1, or assigned by the shared log.",
    ] = None
    workers: Annotated[
        int,
        _whole(1, 64),
        "Number of processes that serve the log in the data directory; each is a broker with its own Kafka port.",
    ] = 1
    log: Annotated[
        str,
        _one_of("auto", "file", "bucket", "etcd"),
        "Location of the log: file is the data directory, bucket and etcd are shared; auto: from --store and --etcd.",
    ] = "auto"
    store: Annotated[
        str, _URL, "URL of the object store of a cluster: s3://bucket/prefix, gs://…, az://… or file:///path."
    ] = ""
    objects: Annotated[
        str,
        _URL,
        "URL of an object store for older files of a log in the data directory, and for the files of tables.",
    ] = ""
    table_locations: Annotated[
        str,
        _URLS,
        "URLs of folders and buckets outside the store in which users may place their own tables, comma-separated.",
    ] = ""
    hot_retain_bytes: Annotated[
        int,
        _size(0, 2**62),
        "With --objects: maximum bytes of sealed log files to keep on disk; 0: no limit by bytes.",
    ] = limits.HOT_RETAIN_BYTES
    hot_retain_segments: Annotated[
        int,
        _whole(0, 2**31),
        "With --objects: maximum number of sealed log files to keep on disk; 0: no limit by number.",
    ] = 0
    etcd: Annotated[
        str, _MEMBERS, "Members of the etcd cluster that orders a shared log, comma-separated."
    ] = ""
    linger_ms: Annotated[
        int | None,
        _whole(0, 60_000),
        "How long records wait to be committed together; none: 100 for a log in a bucket, otherwise 0.",
    ] = None
    zone: Annotated[
        str, _NAME, "Zone of this broker: clients that set the same zone (client.rack) use it."
    ] = ""
    http_advertise: Annotated[
        Address | None,
        _ADVERTISED,
        "Address that HTTP clients use for this broker; none: the address of the door.",
    ] = None
    node: Annotated[str, _NAME, "Name of this broker, for display."] = "local"
    durability: Annotated[
        str,
        _one_of("ephemeral", "memory", "disk", "fsync"),
        "Default durability class of topics: what an acknowledged write survives.",
    ] = "fsync"
    sync_every_ms: Annotated[
        int,
        _whole(0, 3_600_000),
        "Interval of background syncs for topics below class fsync; 0: left to the kernel.",
    ] = 0
    segment_bytes: Annotated[
        int, _size(64 * limits.KIB, 2 * limits.GIB), "Size at which a log file is sealed."
    ] = limits.SEGMENT_BYTES
    checkpoint_every_bytes: Annotated[
        int,
        _size(64 * limits.KIB, 1024 * limits.GIB),
        "Bytes of log between two checkpoints; limits the replay at start.",
    ] = limits.CHECKPOINT_EVERY_BYTES
    repack: Annotated[
        str,
        _one_of("on", "off"),
        "Repack sealed log files into files in which the records of each partition are contiguous.",
    ] = "on"
    repack_after_objects: Annotated[
        int, _whole(1, 2**31), "Number of waiting sealed log files at which repacking starts with the oldest."
    ] = limits.REPACK_AFTER_OBJECTS
    repack_bytes_per_s: Annotated[
        int, _size(0, 1024 * limits.GIB), "Read rate of repacking in bytes per second; 0: unlimited."
    ] = limits.REPACK_BYTES_PER_S
    tail_cache_bytes: Annotated[
        int, _size(0, 1024 * limits.GIB), "Memory for the cache of the newest records."
    ] = limits.TAIL_CACHE_BYTES
    text_segment_entries: Annotated[
        int, _whole(1, 2**62), "Entries per segment in the response to STATE of the text door."
    ] = limits.TEXT_SEGMENT_ENTRIES
    text_connections: Annotated[int, _whole(1, 1_000_000), "Maximum connections of the text door."] = (
        limits.TEXT_CONNECTIONS_MAX
    )
    text_idle_ms: Annotated[
        int, _whole(1, 86_400_000), "Idle time after which a connection of the text door is closed."
    ] = int(limits.TEXT_IDLE_S * 1000)
    pulsar_connections: Annotated[int, _whole(1, 1_000_000), "Maximum connections of the Pulsar door."] = (
        limits.PULSAR_CONNECTIONS_MAX
    )
    pulsar_tls_cert: Annotated[Path | None, _PATH, "Certificate chain of the Pulsar door; none: no TLS."] = (
        None
    )
    pulsar_tls_key: Annotated[Path | None, _PATH, "Private key, if it is not in the certificate file."] = None
    pulsar_tls_ca: Annotated[
        Path | None,
        _PATH,
        "Certificate authority: Pulsar clients may authenticate with a certificate from it.",
    ] = None
    pulsar_deduplication: Annotated[
        bool, _FLAG, "Turn on mainstem.pulsar.deduplication for topics that Pulsar clients create."
    ] = False
    pulsar_auto_create: Annotated[
        bool, _FLAG, "Create topics when Pulsar producers or consumers use names that do not exist."
    ] = True
    kafka_connections: Annotated[int, _whole(1, 1_000_000), "Maximum connections of the Kafka door."] = (
        limits.KAFKA_CONNECTIONS_MAX
    )
    kafka_request_bytes: Annotated[
        int, _size(limits.KIB, 1 * limits.GIB), "Maximum size of a Kafka request."
    ] = limits.KAFKA_REQUEST_BYTES_MAX
    kafka_in_flight_requests: Annotated[
        int,
        _whole(1, 1_000_000),
        "Maximum unanswered requests of one Kafka connection; at the limit the door stops reading.",
    ] = limits.KAFKA_REQUESTS_IN_FLIGHT_MAX
    kafka_in_flight_bytes: Annotated[
        int,
        _size(limits.KIB, 1024 * limits.GIB),
        "Maximum bytes of unanswered requests of one Kafka connection.",
    ] = limits.KAFKA_BYTES_IN_FLIGHT_MAX
    kafka_idle_ms: Annotated[
        int, _whole(1, 86_400_000), "Idle time after which a Kafka connection is closed."
    ] = int(limits.KAFKA_IDLE_S * 1000)
    kafka_group_delay_ms: Annotated[
        int, _whole(0, 60_000), "How long an empty group waits for more members before the first rebalance."
    ] = limits.GROUP_INITIAL_DELAY_MS
    kafka_num_partitions: Annotated[
        int,
        _whole(1, limits.PARTITIONS_PER_TOPIC_MAX),
        "Partitions of topics that Kafka clients create without a number (num.partitions).",
    ] = 1
    kafka_auto_create: Annotated[
        bool,
        _FLAG,
        "Create topics that Kafka clients name and that do not exist (auto.create.topics.enable).",
    ] = True
    kafka_two_phase_commit: Annotated[
        bool,
        _FLAG,
        "Let Kafka producers use two-phase commit: their transactions never time out "
        "(transaction.two.phase.commit.enable).",
    ] = False
    kafka_group_members: Annotated[int, _whole(1, 1_000_000), "Maximum members of a group."] = (
        limits.GROUP_MEMBERS_MAX
    )
    kafka_offsets_retention_ms: Annotated[
        int, _whole(0, 2**53), "How long the offsets of a group without members are kept."
    ] = limits.OFFSETS_RETENTION_MS
    kafka_tls_cert: Annotated[Path | None, _PATH, "Certificate chain of the Kafka door; none: no TLS."] = None
    kafka_tls_key: Annotated[Path | None, _PATH, "Private key, if it is not in the certificate file."] = None
    kafka_tls_ca: Annotated[
        Path | None, _PATH, "Certificate authority: Kafka clients must present a certificate from it."
    ] = None
    kafka_sasl: Annotated[
        str,
        _WORDS,
        "SASL mechanisms, comma-separated: plain, scram-sha-256, scram-sha-512, oauthbearer; none: no SASL.",
    ] = ""
    kafka_users: Annotated[
        str,
        _SECRET,
        "Users: name:password or name:SCRAM-SHA-256$iterations$salt$stored$server, comma-separated; -: from stdin.",
    ] = ""
    kafka_reauthenticate_ms: Annotated[
        int, _whole(0, 2**53), "How long an authenticated Kafka session lasts; 0: as long as its connection."
    ] = 0
    kafka_oauth_jwks: Annotated[
        Path | None, _PATH, "JWKS file with the keys that verify OAuth bearer tokens, read at start."
    ] = None
    kafka_oauth_issuer: Annotated[
        str,
        _TEXT_VALUE,
        "Required issuer (iss) of bearer tokens; any: accept every issuer. Required with a JWKS.",
    ] = ""
    kafka_oauth_audience: Annotated[
        str,
        _TEXT_VALUE,
        "Required audience (aud) of bearer tokens; any: accept every audience. Required with a JWKS.",
    ] = ""
    kafka_oauth_unsecured: Annotated[bool, _FLAG, "Accept unsigned bearer tokens: for development only."] = (
        False
    )
    oidc_issuer: Annotated[
        str,
        _TEXT_VALUE,
        "URL of an OpenID Connect issuer whose tokens every door accepts; the server fetches and renews its keys.",
    ] = ""
    oidc_audience: Annotated[
        str,
        _TEXT_VALUE,
        "Required audience (aud) of tokens of --oidc-issuer; any: accept every audience.",
    ] = ""
    oidc_principal_claim: Annotated[
        str,
        _TEXT_VALUE,
        "Claim of a token that names its user, such as preferred_username or client_id.",
    ] = "sub"
    kafka_acl: Annotated[
        str,
        _one_of("auto", "on", "off"),
        "Enforce ACLs on the Kafka door; auto: if clients use SASL or certificates.",
    ] = "auto"
    kafka_allow_everyone_if_no_acl: Annotated[
        bool,
        _FLAG,
        "Open resources that no ACL names to every client (allow.everyone.if.no.acl.found); keys keep their limits.",
    ] = False
    audit: Annotated[
        str,
        _one_of("auto", "on", "off"),
        "Write administrative and denied operations to the topic __audit; auto: if clients authenticate.",
    ] = "auto"
    kafka_super_users: Annotated[
        str, _NAMES, "Kafka users with all permissions, separated by semicolons."
    ] = ""
    api_keys: Annotated[
        str,
        _SECRET,
        "API keys, for every door: key[:scopes[:prefixes]], comma-separated; -: read them from standard input.",
    ] = ""
    api_keys_file: Annotated[
        Path | None,
        _PATH,
        "File with API keys, one per line or comma-separated, written as in --api-keys.",
    ] = None
    kafka_users_file: Annotated[
        Path | None,
        _PATH,
        "File with users, one per line or comma-separated, written as in --kafka-users.",
    ] = None
    insecure: Annotated[
        bool, _FLAG, "Allow doors without authentication to listen on addresses other than loopback."
    ] = False
    insecure_http: Annotated[
        bool, _FLAG, "Let anonymous clients do everything over HTTP, even if access is restricted."
    ] = False
    insecure_kafka: Annotated[
        bool,
        _FLAG,
        "Let anonymous clients do everything over Kafka, even if access is restricted.",
    ] = False
    insecure_text: Annotated[
        bool,
        _FLAG,
        "Let anonymous clients do everything at the text door, even if access is restricted.",
    ] = False
    insecure_s3: Annotated[
        bool,
        _FLAG,
        "Let anonymous clients do everything at the S3 door, even if access is restricted.",
    ] = False
    insecure_pulsar: Annotated[
        bool,
        _FLAG,
        "Let anonymous clients do everything at the Pulsar door, even if access is restricted.",
    ] = False
    allowed_origins: Annotated[
        str,
        _WORDS,
        "Origins of web pages that may call the HTTP door from a browser, comma-separated; *: every origin.",
    ] = ""
    allowed_hosts: Annotated[
        str,
        _WORDS,
        "Further host names by which clients without credentials reach the HTTP door; *: every name.",
    ] = ""
    path_roots: Annotated[
        str,
        _WORDS,
        "Directories that backups and Delta tables may use, comma-separated; none: any, for administrators only.",
    ] = ""
    allow_insecure_no_auth: Annotated[bool, _FLAG, "The same as --insecure, for the HTTP door only."] = False
    probe_auth: Annotated[bool, _FLAG, "Require a key for health and readiness, too."] = False
    tls_cert: Annotated[Path | None, _PATH, "Certificate chain of the HTTP door; none: no TLS."] = None
    tls_key: Annotated[Path | None, _PATH, "Private key, if it is not in the certificate file."] = None
    tls_ca: Annotated[
        Path | None, _PATH, "Certificate authority: HTTP clients must present a certificate from it."
    ] = None
    max_topics: Annotated[int, _whole(0, 2**31), "Maximum number of topics; 0: unlimited."] = (
        limits.TOPICS_MAX
    )
    max_partitions: Annotated[
        int, _whole(0, 2**31), "Maximum number of partitions of all topics; 0: unlimited."
    ] = limits.PARTITIONS_MAX
    max_routers: Annotated[int, _whole(0, 2**31), "Maximum number of routers; 0: unlimited."] = (
        limits.ROUTERS_MAX
    )
    max_watch_sessions: Annotated[
        int, _whole(0, 2**31), "Maximum number of watch sessions; 0: unlimited."
    ] = limits.HTTP_WATCH_SESSIONS_MAX
    max_sse_connections: Annotated[
        int, _whole(0, 2**31), "Maximum number of open event streams; 0: unlimited."
    ] = limits.HTTP_STREAMS_MAX
    max_sse_connections_per_key: Annotated[
        int, _whole(0, 2**31), "Maximum number of open event streams per key; 0: unlimited."
    ] = limits.HTTP_STREAMS_PER_KEY_MAX
    max_inflight_per_key: Annotated[
        int, _whole(0, 2**31), "Maximum number of concurrent requests per key; 0: unlimited."
    ] = limits.HTTP_INFLIGHT_PER_KEY_MAX
    max_total_bytes: Annotated[
        int, _size(0, 2**62), "Maximum bytes of records in all topics; 0: unlimited."
    ] = 0
    max_body_bytes: Annotated[
        int,
        _size(0, limits.HTTP_BODY_BYTES_MAX),
        "Maximum size of a request body; 0: the highest possible limit.",
    ] = limits.HTTP_BODY_BYTES_MAX
    clock_step_ms: Annotated[
        int,
        _whole(0, 2**53),
        "Largest jump ahead of the system clock that a running server follows; 0: any. A restart accepts the clock.",
    ] = limits.CLOCK_STEP_MS_MAX
    accept_missing: Annotated[
        bool,
        _FLAG,
        "Record the records of missing log files as lost for good, instead of waiting until a file is restored.",
    ] = False
    lake_topics: Annotated[
        str,
        _one_of("tables", "all"),
        "Topics to convert to Parquet: tables and compacted topics, or all topics.",
    ] = "tables"
    lake: Annotated[bool, _FLAG, "Run the driver of the lake with the server. Needs PySpark and Java."] = (
        False
    )
    traces: Annotated[
        str,
        _NAME,
        "OpenTelemetry exporter for a span of each HTTP write, for example otlp_proto_http; none: no spans.",
    ] = ""
    log_format: Annotated[
        str,
        _one_of("auto", "text", "json"),
        "Format of log lines: text is key=value; auto: text on a terminal, otherwise JSON.",
    ] = "auto"
    log_level: Annotated[str, _one_of("debug", "info", "warning", "error"), "Lowest level to log."] = "info"


@dataclass(frozen=True, slots=True)
class Setting:
    name: str
    kind: ValueKind[Any]
    help: str
    default: object

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def env(self) -> str:
        return ENV_PREFIX + self.name.upper()

    def shown(self, value: object) -> str:
        """Format a value as for a flag. For a secret, show only whether it is set."""
        if self.kind.secret:
            return "(set)" if value else ""
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ";".join(map(str, value)) or self.kind.absent
        return self.kind.absent if value is None else str(value)


def _table() -> tuple[Setting, ...]:
    hints = get_type_hints(Config, include_extras=True)
    rows = []
    for row in fields(Config):
        kind, help = hints[row.name].__metadata__
        rows.append(Setting(row.name, kind, help, row.default))
    return tuple(rows)


SETTINGS: tuple[Setting, ...] = _table()


@dataclass(frozen=True, slots=True)
class Resolved:
    config: Config
    sources: Mapping[str, str]  # setting name → source of its value


def resolve(flags: Mapping[str, str], environ: Mapping[str, str], file: Path | None = None) -> Resolved:
    """Resolve every setting from its first source. `file` is the --config flag. Raises InvalidConfig."""
    path, table = _read_file(file, environ)
    found: dict[str, object] = {}
    sources: dict[str, str] = {}
    for row in SETTINGS:
        if row.name in flags:
            raw, source, named = flags[row.name], "flag", row.flag
        elif environ.get(row.env):  # an empty variable counts as unset
            raw, source, named = environ[row.env], "environment", row.env
        elif row.name in table:
            raw, source, named = table[row.name], f"file {path}", f"{row.name} in {path}"
        else:
            sources[row.name] = "default"
            continue
        try:
            found[row.name] = row.kind.parse(raw)
        except ValueError as wrong:
            raise InvalidConfig(f"{named} {wrong}") from None
        sources[row.name] = source
    return Resolved(Config(**found), sources)  # type: ignore[arg-type]  # each value has the type of its row


def _read_file(file: Path | None, environ: Mapping[str, str]) -> tuple[Path, dict[str, str]]:
    path = file or Path(environ.get(FILE_ENV) or FILE_DEFAULT)
    wanted = file is not None or bool(environ.get(FILE_ENV))
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        if wanted:
            raise InvalidConfig(f"the config file {path} does not exist") from None
        return path, {}
    except (OSError, UnicodeDecodeError) as wrong:
        raise InvalidConfig(f"the config file {path} cannot be read: {wrong}") from None
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as wrong:
        raise InvalidConfig(f"the config file {path} is not valid TOML: {wrong}") from None
    return path, _validated_table(path, table)


def _validated_table(path: Path, table: dict[str, Any]) -> dict[str, str]:
    known = {row.name: row.kind for row in SETTINGS}
    checked: dict[str, str] = {}
    for key, value in table.items():
        if key not in known:
            near = values.did_you_mean(key.replace("-", "_"), known)
            raise InvalidConfig(f"unknown setting {key!r} in {path}{near}")
        if isinstance(value, bool) and known[key] is _FLAG:
            value = str(value).lower()
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise InvalidConfig(f"{key} in {path} takes text or a whole number, not {value!r}")
        checked[key] = str(value)
    return checked
