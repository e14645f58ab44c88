"""Keys of a log in a bucket, below one folder. Version 1; numbers in keys have 20 digits, so that they sort.

| key                                       | object                                                        |
|-------------------------------------------|---------------------------------------------------------------|
| id                                        | the log's id, see identity.py                                 |
| entries/<position>                        | one commit, see entries.py: the first put wins                |
| wal/<commit id>-<part>                    | what does not fit into a commit's entry                       |
| seals/<object>                            | the index of a sealed object, see seals.py; put last          |
| seals/<object>.gone                       | that object was dropped                                       |
| objects/<object>/<part>                   | the payload of a sealed object, in parts of one size          |
| checkpoints/<position>-<token>            | a checkpoint, see checkpoints.py; put last                    |
| states/<token>-<part>                     | its state                                                     |
| floor/<position>-<number>                 | commits before it, of objects up to that one, were truncated  |
| clock/<token>                             | put and deleted again to learn the store's time               |
| turn                                      | the request of a writer that lost races, see core/fairness.py |
| probe/<token>                             | put and deleted again to test conditional puts                |

An object is named <number>-<first>-<end>-<bytes>. If its seal refers to WAL objects, -<bytes> follows: how much of its
payload they hold. They stay as long as the object does.
"""

from __future__ import annotations

from dataclasses import dataclass

from mainstem.errors import LogDamaged
from mainstem.ports.commitlog.shared.core.backend import CheckpointName, Floor

LOG_FOLDER = "log"  # of a shared log, in its store
DIGITS = 20
TOKEN_BYTES = 16
_DROPPED = ".gone"


@dataclass(frozen=True, slots=True)
class SealName:
    """A sealed object, as the key of its seal describes it: a listing of the seals gives all objects."""

    number: int
    first: int
    end: int
    size: int  # bytes of payload
    referenced: int = 0  # bytes of it that stayed in WAL objects: see references.py

    def __str__(self) -> str:
        name = f"{self.number:0{DIGITS}d}-{self.first:0{DIGITS}d}-{self.end:0{DIGITS}d}-{self.size}"
        return f"{name}-{self.referenced}" if self.referenced else name

    @property
    def packed(self) -> int:
        """Bytes of payload that sealing copied."""
        return self.size - self.referenced


@dataclass(frozen=True, slots=True)
class BucketKeys:
    """The keys of one log."""

    folder: str

    @property
    def id(self) -> str:
        return f"{self.folder}/id"

    @property
    def turn(self) -> str:
        return f"{self.folder}/turn"

    @property
    def entries(self) -> str:
        return f"{self.folder}/entries/"

    def entry(self, position: int) -> str:
        return f"{self.entries}{position:0{DIGITS}d}"

    @property
    def wal(self) -> str:
        return f"{self.folder}/wal/"

    def wal_part(self, commit: bytes, part: int) -> str:
        return f"{self.wal}{commit.hex()}-{part}"

    @property
    def seals(self) -> str:
        return f"{self.folder}/seals/"

    def seal(self, name: SealName) -> str:
        return f"{self.seals}{name}"

    def dropped(self, name: SealName) -> str:
        return f"{self.seals}{name}{_DROPPED}"

    def object_part(self, name: SealName, part: int) -> str:
        return f"{self.folder}/objects/{name}/{part}"

    @property
    def checkpoints(self) -> str:
        return f"{self.folder}/checkpoints/"

    def checkpoint(self, name: CheckpointName) -> str:
        return f"{self.checkpoints}{name.position:0{DIGITS}d}-{name.token.hex()}"

    def state_part(self, token: bytes, part: int) -> str:
        return f"{self.folder}/states/{token.hex()}-{part}"

    @property
    def floors(self) -> str:
        return f"{self.folder}/floor/"

    def floor(self, floor: Floor) -> str:
        return f"{self.floors}{floor.position:0{DIGITS}d}-{floor.object:0{DIGITS}d}"

    def clock(self, token: bytes) -> str:
        return f"{self.folder}/clock/{token.hex()}"

    def probe(self, token: bytes) -> str:
        return f"{self.folder}/probe/{token.hex()}"


def last_part(key: str) -> str:
    return key.rpartition("/")[2]


def position_in(key: str) -> int:
    """The position in an entry's key. Raises LogDamaged, as the functions below, for a key that no log writes."""
    (position,) = _numbers(key, last_part(key), 1)
    return position


def wal_in(key: str) -> bytes:
    """The commit id in a WAL object's key."""
    return _token(key, last_part(key).partition("-")[0])


def seal_in(key: str) -> tuple[SealName, bool]:
    """The object in a seal's key, and whether the key says that it was dropped."""
    name = last_part(key)
    return SealName(*_numbers(key, name.removesuffix(_DROPPED), 4, 5)), name.endswith(_DROPPED)


def floor_in(key: str) -> Floor:
    return Floor(*_numbers(key, last_part(key), 2))


def checkpoint_in(key: str) -> CheckpointName:
    number, _, token = last_part(key).partition("-")
    (position,) = _numbers(key, number, 1)
    return CheckpointName(position, _token(key, token))


def _numbers(key: str, text: str, *counts: int) -> list[int]:
    parts = text.split("-")
    if len(parts) not in counts or not all(part.isascii() and part.isdigit() for part in parts):
        raise _foreign(key)
    return [int(part) for part in parts]


def _token(key: str, text: str) -> bytes:
    try:
        token = bytes.fromhex(text)
    except ValueError:
        token = b""
    if len(token) != TOKEN_BYTES:
        raise _foreign(key)
    return token


def _foreign(key: str) -> LogDamaged:
    return LogDamaged(f"object {key!r} is among the log's objects but is not one of them: move it away")
