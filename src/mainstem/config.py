"""Settings of a server: one table that flags, environment, file and documentation are made from.

A value comes from the first of: the flag, the `MAINSTEM_…` variable, the TOML file, the default.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar, get_type_hints

from mainstem import limits, values
from mainstem.address import Address
from mainstem.errors import InvalidConfig

T = TypeVar("T")

ENV_PREFIX = "MAINSTEM_"
FILE_ENV = "MAINSTEM_CONFIG"
FILE_DEFAULT = "mainstem.toml"


@dataclass(frozen=True, slots=True)
class ValueKind(Generic[T]):
    """How a value is written."""

    metavar: str
    parse: Callable[[str], T]  # raises ValueError, as values.py says
    absent: str = ""  # how no value is shown
    secret: bool = False  # never shown


def _whole(low: int, high: int) -> ValueKind[int]:
    return ValueKind("N", values.whole(low, high))


def _size(low: int, high: int) -> ValueKind[int]:
    return ValueKind("BYTES", values.size(low, high))


def _one_of(*choices: str) -> ValueKind[str]:
    return ValueKind("|".join(choices), values.one_of(*choices))


def _address_or_off(text: str) -> Address | None:
    return None if text == "off" else Address.parse(text)


_PATH = ValueKind("PATH", values.path)
_ADDRESS = ValueKind("HOST:PORT|off", _address_or_off, absent="off")
_ADVERTISED = ValueKind("HOST:PORT", Address.parse)
_NAME = ValueKind("NAME", values.name)
_FLAG = ValueKind("true|false", values.flag)
_SECRET = ValueKind("KEYS", str, secret=True)
_URL = ValueKind("URL", str, secret=True)  # it may hold a key
_MEMBERS = ValueKind("HOST:PORT,…", str)
_WORDS = ValueKind("WORD,…", str)
_NAMES = ValueKind("NAME;…", str)
_TEXT_VALUE = ValueKind("TEXT", str)


_HTTP = Address("127.0.0.1", 4000)
_TEXT = Address("127.0.0.1", 9091)
_KAFKA = Address("127.0.0.1", 9092)


@dataclass(frozen=True, kw_only=True)
class Config:
    """The table of settings: name, type, how it is written, what it means, default."""

    data_dir: Annotated[Path, _PATH, "Directory that holds the log."] = Path("data")
    http: Annotated[Address | None, _ADDRESS, "Where the HTTP door listens (port 0: any free one)."] = _HTTP
    text: Annotated[Address | None, _ADDRESS, "Where the text door listens (port 0: any free one)."] = _TEXT
    kafka: Annotated[Address | None, _ADDRESS, "Where the Kafka door listens (port 0: any free one)."] = (
        _KAFKA
    )
    kafka_advertise: Annotated[
        Address | None,
        _ADVERTISED,
        "Where Kafka clients are told to connect; by default where the door listens.",
    ] = None
    ports_file: Annotated[
        Path | None, _PATH, "Once ready, write a JSON map from each door to its address here."
    ] = None
    broker_id: Annotated[
        int | None,
        _whole(0, 2**31 - 1),
        "Number of this broker, unique among those of one log; none: 1, or what a shared log gives.",
    ] = None
    log: Annotated[
        str,
        _one_of("auto", "file", "bucket", "etcd"),
        "Where the log stands: the data directory, or a place that several brokers share; auto: by what is given.",
    ] = "auto"
    store: Annotated[
        str, _URL, "URL of the object store: s3://bucket/prefix, gs://…, az://… or file:///path."
    ] = ""
    objects: Annotated[
        str,
        _URL,
        "URL of an object store for a log in the data directory: its older files, and those of tables, go there.",
    ] = ""
    hot_retain_bytes: Annotated[
        int,
        _size(0, 2**62),
        "With --objects: bytes of sealed log files that the disk keeps as well; 0: not bounded so.",
    ] = limits.HOT_RETAIN_BYTES
    hot_retain_segments: Annotated[
        int,
        _whole(0, 2**31),
        "With --objects: sealed log files that the disk keeps as well, at the most; 0: not bounded so.",
    ] = 0
    etcd: Annotated[str, _MEMBERS, "Members of the etcd that orders a shared log, comma-separated."] = ""
    linger_ms: Annotated[
        int | None,
        _whole(0, 60_000),
        "How long records wait for others to be written together; none: 100 for a log in a bucket, else 0.",
    ] = None
    zone: Annotated[str, _NAME, "Where this broker runs: clients that name the same zone are sent here."] = ""
    http_advertise: Annotated[
        Address | None,
        _ADVERTISED,
        "Where HTTP clients are told to connect; by default where the door listens.",
    ] = None
    node: Annotated[str, _NAME, "Name of this broker, for people."] = "local"
    durability: Annotated[
        str,
        _one_of("ephemeral", "memory", "disk", "fsync"),
        "Class of topics made without one: what holds when a write is acknowledged.",
    ] = "fsync"
    sync_every_ms: Annotated[
        int,
        _whole(0, 3_600_000),
        "Sync topics below class fsync in the background this often; 0 leaves it to the kernel.",
    ] = 0
    segment_bytes: Annotated[
        int, _size(64 * limits.KIB, 2 * limits.GIB), "Size at which a log file is sealed."
    ] = limits.SEGMENT_BYTES
    checkpoint_every_bytes: Annotated[
        int,
        _size(64 * limits.KIB, 1024 * limits.GIB),
        "Log written between two checkpoints; it bounds how long a start takes.",
    ] = limits.CHECKPOINT_EVERY_BYTES
    repack: Annotated[
        str,
        _one_of("on", "off"),
        "Whether sealed log files are copied into files in which each topic's records stand together.",
    ] = "on"
    repack_after_objects: Annotated[
        int, _whole(1, 2**31), "Sealed log files that wait before the oldest are repacked."
    ] = limits.REPACK_AFTER_OBJECTS
    repack_bytes_per_s: Annotated[
        int, _size(0, 1024 * limits.GIB), "Bytes that repacking reads in a second; 0: as fast as it goes."
    ] = limits.REPACK_BYTES_PER_S
    tail_cache_bytes: Annotated[int, _size(0, 1024 * limits.GIB), "Memory for the newest records."] = (
        limits.TAIL_CACHE_BYTES
    )
    text_segment_entries: Annotated[
        int, _whole(1, 2**62), "Entries in a segment, as the text door's STATE counts them."
    ] = limits.TEXT_SEGMENT_ENTRIES
    text_connections: Annotated[int, _whole(1, 1_000_000), "Connections the text door holds at once."] = (
        limits.TEXT_CONNECTIONS_MAX
    )
    kafka_connections: Annotated[int, _whole(1, 1_000_000), "Connections the Kafka door holds at once."] = (
        limits.KAFKA_CONNECTIONS_MAX
    )
    kafka_request_bytes: Annotated[
        int, _size(limits.KIB, 1 * limits.GIB), "Largest request the Kafka door takes."
    ] = limits.KAFKA_REQUEST_BYTES_MAX
    kafka_in_flight_requests: Annotated[
        int, _whole(1, 1_000_000), "Unanswered requests of one Kafka connection; beyond it nothing is read."
    ] = limits.KAFKA_REQUESTS_IN_FLIGHT_MAX
    kafka_in_flight_bytes: Annotated[int, _size(limits.KIB, 1024 * limits.GIB), "The same in bytes."] = (
        limits.KAFKA_BYTES_IN_FLIGHT_MAX
    )
    kafka_idle_ms: Annotated[
        int, _whole(1, 86_400_000), "A Kafka connection on which nothing happens for this long is closed."
    ] = int(limits.KAFKA_IDLE_S * 1000)
    kafka_group_delay_ms: Annotated[
        int, _whole(0, 60_000), "How long an empty group waits for more members before it starts."
    ] = limits.GROUP_INITIAL_DELAY_MS
    kafka_group_members: Annotated[int, _whole(1, 1_000_000), "Members one group may have."] = (
        limits.GROUP_MEMBERS_MAX
    )
    kafka_offsets_retention_ms: Annotated[
        int, _whole(0, 2**53), "Offsets of a group that nobody was in for this long are forgotten."
    ] = limits.OFFSETS_RETENTION_MS
    kafka_tls_cert: Annotated[Path | None, _PATH, "Certificate chain of the Kafka door; none: no TLS."] = None
    kafka_tls_key: Annotated[Path | None, _PATH, "Its private key, if not in the same file."] = None
    kafka_tls_ca: Annotated[
        Path | None, _PATH, "Kafka clients must show a certificate of this authority."
    ] = None
    kafka_sasl: Annotated[
        str,
        _WORDS,
        "How Kafka clients log in: plain, scram-sha-256, scram-sha-512, oauthbearer, with commas; none: not at all.",
    ] = ""
    kafka_users: Annotated[
        str,
        _SECRET,
        "Users of the Kafka door: name:password or name:SCRAM-SHA-256$iterations$salt$stored$server, comma-separated.",
    ] = ""
    kafka_reauthenticate_ms: Annotated[
        int, _whole(0, 2**53), "How long a Kafka client's login lasts; 0: as long as its connection."
    ] = 0
    kafka_oauth_jwks: Annotated[
        Path | None, _PATH, "File of the keys that verify OAuth bearer tokens (JWKS), read at start."
    ] = None
    kafka_oauth_issuer: Annotated[
        str, _TEXT_VALUE, "Issuer (iss) that bearer tokens must name; any: every one. Required with a JWKS."
    ] = ""
    kafka_oauth_audience: Annotated[
        str, _TEXT_VALUE, "Audience (aud) that bearer tokens must name; any: every one. Required with a JWKS."
    ] = ""
    kafka_oauth_unsecured: Annotated[bool, _FLAG, "Accept unsigned bearer tokens: for development only."] = (
        False
    )
    kafka_acl: Annotated[
        str,
        _one_of("auto", "on", "off"),
        "Whether access rules decide what Kafka clients may do; auto: if clients log in or show certificates.",
    ] = "auto"
    kafka_super_users: Annotated[
        str, _NAMES, "Kafka users that may do everything, separated by semicolons."
    ] = ""
    api_keys: Annotated[
        str, _SECRET, "Keys of the HTTP door: key[:scopes[:prefixes]], comma-separated; none: open to all."
    ] = ""
    allow_insecure_no_auth: Annotated[
        bool, _FLAG, "Let the HTTP door listen beyond this machine without keys."
    ] = False
    probe_auth: Annotated[bool, _FLAG, "Ask for a key at health and readiness as well."] = False
    tls_cert: Annotated[Path | None, _PATH, "Certificate chain of the HTTP door; none: no TLS."] = None
    tls_key: Annotated[Path | None, _PATH, "Its private key, if not in the same file."] = None
    tls_ca: Annotated[Path | None, _PATH, "Clients must show a certificate of this authority."] = None
    max_topics: Annotated[int, _whole(0, 2**31), "Topics this server makes; 0 = unlimited."] = (
        limits.TOPICS_MAX
    )
    max_routers: Annotated[int, _whole(0, 2**31), "Routers this server makes; 0 = unlimited."] = (
        limits.ROUTERS_MAX
    )
    max_watch_sessions: Annotated[int, _whole(0, 2**31), "Watch sessions held at once; 0 = unlimited."] = (
        limits.HTTP_WATCH_SESSIONS_MAX
    )
    max_sse_connections: Annotated[int, _whole(0, 2**31), "Event streams open at once; 0 = unlimited."] = (
        limits.HTTP_STREAMS_MAX
    )
    max_sse_connections_per_key: Annotated[
        int, _whole(0, 2**31), "Event streams open at once with one key; 0 = unlimited."
    ] = limits.HTTP_STREAMS_PER_KEY_MAX
    max_inflight_per_key: Annotated[
        int, _whole(0, 2**31), "Requests of one key under way at once; 0 = unlimited."
    ] = limits.HTTP_INFLIGHT_PER_KEY_MAX
    max_total_bytes: Annotated[
        int, _size(0, 2**62), "Bytes of records the server holds in all; 0 = unlimited."
    ] = 0
    max_body_bytes: Annotated[
        int, _size(0, limits.HTTP_BODY_BYTES_MAX), "Largest body of a request; 0 = the most there may be."
    ] = limits.HTTP_BODY_BYTES_MAX
    lake_topics: Annotated[
        str,
        _one_of("tables", "all"),
        "Whose records become Parquet: of tables and compacted topics, or of all.",
    ] = "tables"
    lake: Annotated[
        bool, _FLAG, "Run the lake's driver beside the server: records become tables. Needs PySpark and Java."
    ] = False
    traces: Annotated[
        str,
        _NAME,
        "Exporter of OpenTelemetry that gets a span of each HTTP write, such as otlp_proto_http; none: no spans.",
    ] = ""
    log_format: Annotated[
        str, _one_of("auto", "text", "json"), "Log lines as key=value or JSON; auto: key=value on a terminal."
    ] = "auto"
    log_level: Annotated[str, _one_of("debug", "info", "warning", "error"), "Least level to log."] = "info"


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
        """A value as a flag or variable would be written; a secret one only shows whether it is there."""
        if self.kind.secret:
            return "(set)" if value else ""
        if isinstance(value, bool):
            return "true" if value else "false"
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
    sources: Mapping[str, str]  # setting name → where its value came from


def resolve(flags: Mapping[str, str], environ: Mapping[str, str], file: Path | None = None) -> Resolved:
    """Every setting from the first place that has it. `file` is the --config flag. Raises InvalidConfig."""
    path, table = _read_file(file, environ)
    found: dict[str, object] = {}
    sources: dict[str, str] = {}
    for row in SETTINGS:
        if row.name in flags:
            raw, source, named = flags[row.name], "flag", row.flag
        elif environ.get(row.env):  # an empty variable is an unset one
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
    return Resolved(Config(**found), sources)  # type: ignore[arg-type]  # each value is of its row's kind


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
