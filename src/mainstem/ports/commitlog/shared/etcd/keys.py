"""Keys of a log in etcd, under one prefix. Version 1; numbers in keys have 20 digits, so that they sort.

| key                    | value                                                                    |
|------------------------|--------------------------------------------------------------------------|
| id                     | 16 random bytes, written once                                            |
| floor                  | `Floor`: commits before it were truncated                                |
| broker/<name>          | `EpochGuard`: which process of the broker may write                      |
| commit/<position>      | `CommitRecord`: one commit                                               |
| payload/<object>/<tried>-<commit id> | a small payload, until its object is sealed                |
| last/<broker>          | `LastCommit`: the last commit of the broker                              |
| current                | number of the newest object (u8, big-endian)                             |
| object/<number>        | `Seal`: a sealed object                                                  |
| checkpoint/<position>  | `Pointer`: where a checkpoint is in the object store                     |
| turn                   | the request of a writer that lost races, see core/fairness.py            |

And in the object store, below one folder:

| key                        | object                                                               |
|----------------------------|----------------------------------------------------------------------|
| id                         | which log owns the store, see bucket/identity.py                     |
| wal/<commit id>            | a commit's payload unless etcd has it, and its entry if that is too large |
| wal/<token>                | the payloads of consecutive small commits                            |
| seals/<number>-<token>     | the object's commits (`DIRECTORY_ROW`s), then its index              |
| checkpoints/<position>-<token> | a state, compressed with zstd                                    |
| clock/<token>              | put and deleted again to learn the store's time                      |
"""

from __future__ import annotations

from dataclasses import dataclass

from mainstem.errors import invariant
from mainstem.ports.commitlog.shared.core.backend import CheckpointName

DIGITS = 20
TOKEN_BYTES = 16


@dataclass(frozen=True, slots=True)
class EtcdKeys:
    """The keys of one log."""

    prefix: bytes

    @classmethod
    def under(cls, prefix: str) -> EtcdKeys:
        invariant(prefix.endswith("/"), "a prefix ends in a slash, otherwise two logs could share keys")
        return cls(prefix.encode())

    @property
    def id(self) -> bytes:
        return self.prefix + b"id"

    @property
    def floor(self) -> bytes:
        return self.prefix + b"floor"

    @property
    def turn(self) -> bytes:
        return self.prefix + b"turn"

    def broker(self, name: str) -> bytes:
        return self.prefix + b"broker/" + name.encode()

    def commit(self, position: int) -> bytes:
        return self.prefix + b"commit/%0*d" % (DIGITS, position)

    @property
    def current(self) -> bytes:
        return self.prefix + b"current"

    def last(self, name: str) -> bytes:
        return self.prefix + b"last/" + name.encode()

    def payload(self, object: int, tried: int, commit: bytes) -> bytes:
        return self.payloads(object) + b"%0*d-%s" % (DIGITS, tried, commit.hex().encode())

    def payloads(self, object: int) -> bytes:
        """Sorts before the payloads of that object, and after those of the objects before it."""
        return self.prefix + b"payload/%0*d/" % (DIGITS, object)

    @property
    def payloads_end(self) -> bytes:
        return self.prefix + b"payload0"

    @property
    def commits_end(self) -> bytes:
        return self.prefix + b"commit0"  # "0" sorts right after "/"

    def object(self, number: int) -> bytes:
        return self.prefix + b"object/%0*d" % (DIGITS, number)

    @property
    def objects_end(self) -> bytes:
        return self.prefix + b"object0"

    def checkpoint(self, position: int) -> bytes:
        return self.prefix + b"checkpoint/%0*d" % (DIGITS, position)

    @property
    def checkpoints_end(self) -> bytes:
        return self.prefix + b"checkpoint0"


def number_in(key: bytes) -> int:
    """The position or number a key ends in."""
    return int(key[-DIGITS:])


def payload_object_in(key: bytes) -> int:
    """The object in the key of a payload."""
    return int(key.rsplit(b"/", 2)[1])


@dataclass(frozen=True, slots=True)
class StoreKeys:
    """The keys of one log's objects."""

    folder: str

    def payload(self, commit: bytes) -> str:
        return f"{self.payloads}{commit.hex()}"

    @property
    def payloads(self) -> str:
        return f"{self.folder}/wal/"

    def seal(self, number: int, token: bytes) -> str:
        return f"{self.folder}/seals/{number:0{DIGITS}d}-{token.hex()}"

    def checkpoint(self, name: CheckpointName) -> str:
        return f"{self.folder}/checkpoints/{name.position:0{DIGITS}d}-{name.token.hex()}"

    def clock(self, token: bytes) -> str:
        return f"{self.folder}/clock/{token.hex()}"


def new_token(now_ms: int, randomness: bytes) -> bytes:
    """A unique id with its creation time: 6 bytes of milliseconds, then 10 random bytes."""
    invariant(len(randomness) == TOKEN_BYTES - 6, "ten random bytes")
    return now_ms.to_bytes(6, "big") + randomness
