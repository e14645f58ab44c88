"""Parts: which Parquet files serve which offsets of a stream. The ledger stores the parts that lake tasks publish."""

from dataclasses import dataclass

from mainstem import limits
from mainstem.api.lake import DataFile, Part
from mainstem.errors import InvalidInput
from mainstem.ledger.topics import Topic

_GENERATIONS = 1 << 31
_DAYS = 1 << 37  # as many as there are in 63 bits of milliseconds
_TIMES = 1 << 63


@dataclass(frozen=True, slots=True)
class ObjectsForgotten:
    objects: int


PARTS = "parts/"  # the folder of the files of all parts


def prefix_of(topic: Topic, stream: int) -> str:
    """What the keys of a stream's files start with."""
    return f"{PARTS}{topic.topic_id.hex()}/{topic.streams.index(stream)}/"


def bad_parts(parts: tuple[Part, ...], prefix: str) -> InvalidInput | None:
    """Why no swap can publish these parts, or None."""
    files = [file for part in parts for file in part.files]
    if not parts or len(parts) + len(files) > limits.SWAP_FILES_MAX:
        return InvalidInput(f"a swap publishes 1 to {limits.SWAP_FILES_MAX} parts and files")
    if len({file.key for file in files}) != len(files):
        return InvalidInput("a swap names the same file twice")
    at = parts[0].base
    for part in parts:
        if (
            part.base != at
            or not 0 <= part.base < part.end <= limits.OFFSET_MAX
            or not 0 < part.generation < _GENERATIONS
        ):
            return InvalidInput(
                f"part [{part.base}, {part.end}) of generation {part.generation} does not continue the one before it"
            )
        wrong = next(filter(None, (_bad_file(file, part, prefix) for file in part.files)), None)
        if wrong is not None:
            return wrong
        if part.records != sum(file.records for file in part.files):
            return InvalidInput(f"part [{part.base}, {part.end}) does not have the record count of its files")
        at = part.end
    return None


def _bad_file(file: DataFile, part: Part, prefix: str) -> InvalidInput | None:
    if not file.key.startswith(prefix) or len(file.key) > limits.OBJECT_KEY_CHARS_MAX:
        return InvalidInput(
            f"the key of a file of this stream must start with {prefix!r}, not {file.key[:200]!r}"
        )
    inside = part.base <= file.base < file.end <= part.end
    counted = 0 < file.records <= file.end - file.base and 0 < file.bytes <= limits.OFFSET_MAX
    if not inside or not counted or not (abs(file.day) < _DAYS and abs(file.max_timestamp) < _TIMES):
        return InvalidInput(f"the file {file.key!r} does not fit its part [{part.base}, {part.end})")
    return None
