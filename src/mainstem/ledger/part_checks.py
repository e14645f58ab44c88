"""What the parts of a swap must be like, whatever they are to replace."""

from __future__ import annotations

from mainstem import limits
from mainstem.errors import InvalidInput
from mainstem.ledger.lake_commands import SwapParts
from mainstem.ledger.parts import DataFile, Part
from mainstem.ledger.topics import Topic


def prefix_of(topic: Topic, stream: int) -> str:
    """What the keys of a stream's files start with."""
    return f"parts/{topic.topic_id.hex()}/{topic.streams.index(stream)}/"


def bad_parts(command: SwapParts, prefix: str) -> InvalidInput | None:
    """Why these parts can serve no range at all, if so."""
    files = [file for part in command.parts for file in part.files]
    if not command.parts or len(command.parts) + len(files) > limits.SWAP_FILES_MAX:
        return InvalidInput(f"a swap brings 1 to {limits.SWAP_FILES_MAX} parts and files")
    if len({file.key for file in files}) != len(files):
        return InvalidInput("a file stands in two places of a swap")
    at = command.parts[0].base
    for part in command.parts:
        if part.base != at or not 0 <= part.base < part.end <= limits.OFFSET_MAX or part.generation < 1:
            return InvalidInput(f"[{part.base}, {part.end}) of generation {part.generation} is no next part")
        wrong = next(filter(None, (_bad_file(file, part, prefix) for file in part.files)), None)
        if wrong is not None:
            return wrong
        if part.records != sum(file.records for file in part.files):
            return InvalidInput(f"part [{part.base}, {part.end}) counts other records than its files")
        at = part.end
    return None


def _bad_file(file: DataFile, part: Part, prefix: str) -> InvalidInput | None:
    if not file.key.startswith(prefix) or len(file.key) > limits.OBJECT_KEY_CHARS_MAX:
        return InvalidInput(
            f"a file of this stream has a key that starts with {prefix!r}: {file.key[:200]!r}"
        )
    inside = part.base <= file.base < file.end <= part.end
    if not inside or not 0 < file.records <= file.end - file.base or file.bytes <= 0:
        return InvalidInput(f"the file {file.key!r} does not fit its part [{part.base}, {part.end})")
    return None
