"""`mainstem dump`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mainstem.errors import InvalidInput

if TYPE_CHECKING:
    from mainstem.cli.contents import CommitFilter, Item
    from mainstem.ports.files import File


@click.command()
@click.argument("path", metavar="FILE", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--records", is_flag=True, help="Decode the records of every append.")
@click.option(
    "--from",
    "from_position",
    type=click.IntRange(min=0),
    default=0,
    metavar="POSITION",
    help="Start at this commit.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    help="Number of commits to show (for a checkpoint: streams; for a repacked file: extents).",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def dump(path: Path, records: bool, from_position: int, limit: int | None, as_json: bool) -> None:
    """Show the contents of FILE: a .wal or .ckpt file of a data directory, or a repacked file of its object store.

    Damaged ranges are marked, and the items after them are shown. Appends have offsets only in a sealed file: an
    unsealed file does not contain them, because they depend on all earlier commits.
    """
    from mainstem.cli.contents import CommitFilter

    wanted = CommitFilter(from_position, limit, records)
    show = _json_line if as_json else _text_lines
    try:
        for item in _items(path, wanted):
            click.echo(show(item))
    except BrokenPipeError:
        # The reader closed the pipe. Nothing more may be flushed to it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _items(path: Path, wanted: CommitFilter) -> Iterator[Item]:
    from mainstem.cli.contents import SegmentContents, checkpoint_items
    from mainstem.cli.repacked_contents import repacked_items
    from mainstem.log.objects.repack import layout
    from mainstem.ports.commitlog.local import checkpoints, cold, segments
    from mainstem.ports.files import OsFiles, read_up_to

    file = OsFiles().open(path)
    try:
        magic = bytes(read_up_to(file, 0, len(segments.HEADER_MAGIC)))
        if magic == checkpoints.MAGIC or path.suffix == checkpoints.SUFFIX:
            if wanted.from_position:
                raise click.UsageError("--from names a commit, and a checkpoint has no commits")
            yield from checkpoint_items(file, wanted)
        elif magic == segments.HEADER_MAGIC or path.suffix == segments.SUFFIX:
            yield from SegmentContents(file, wanted).items()
        elif magic == layout.MAGIC or _ends_as_repacked(file):
            if wanted.from_position:
                raise click.UsageError("--from names a commit, and a repacked file has no commits")
            yield from repacked_items(file, wanted)
        elif magic == cold.MAGIC or path.suffix == cold.SUFFIX:
            raise InvalidInput(
                f"{path} describes a log file that is in the object store: download its parts, "
                "concatenate them into one file, and dump that"
            )
        else:
            raise InvalidInput(f"{path} is not a log file (.wal), a checkpoint (.ckpt) or a repacked file")
    finally:
        file.close()


def _ends_as_repacked(file: File) -> bool:
    """Check the tail, because the head may be damaged. Both identify the file."""
    from mainstem.log.objects.repack import layout
    from mainstem.ports.files import read_up_to

    at = file.size() - layout.HEAD.size
    return at >= 0 and bytes(read_up_to(file, at, len(layout.MAGIC))) == layout.MAGIC


def _json_line(item: Item) -> str:
    return json.dumps(item, ensure_ascii=False, separators=(",", ":"))


def _text_lines(item: Item) -> str:
    return _TEXTS[item["kind"]](item)


def _time(time_ms: int) -> str:
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return f"{time_ms} ms"


def _span(item: Item) -> str:
    return f"{item['start']:>10}-{item['end']}"


def _segment(item: Item) -> str:
    state = "sealed" if item["sealed"] else "not sealed"
    return (
        f"segment {item['number']} of log {item['log']}: {item['bytes']:,} bytes, {state}, "
        f"first position {item['first']}" + (", HEADER DAMAGED" if item["header"] != "whole" else "")
    )


def _commit(item: Item) -> str:
    faults = [
        f"{name.upper().replace('_', ' ')} DAMAGED"
        for name in ("first_copy", "second_copy", "payload")
        if item[name] != "whole"
    ]
    if "fault" in item:
        faults.append(f"UNREADABLE: {item['fault']}")
        head = ""
    else:
        head = (
            f"  {_time(item['time_ms'])}  broker {item['broker']} epoch {item['broker_epoch']}"
            f" commit {item['commit_id']}"
        )
    if "digest" in item:
        head += f"  digest {item['digest']['digest']} at {item['digest']['position']}"
    lines = [
        f"{_span(item)}  position {item['position']}  synced {item['synced']}{head}"
        + "".join(f"  {fault}" for fault in faults)
    ]
    for part in item.get("parts", ()):
        lines += _append(part) if part["kind"] == "append" else [f"{'':12}{_command(part)}"]
    return "\n".join(lines)


def _append(part: Item) -> list[str]:
    offsets = (
        f"{part['count']} offsets"
        if part["offset"] is None
        else f"offsets {part['offset']}-{part['offset'] + part['count'] - 1}"
    )
    line = (
        f"{'':12}append stream {part['stream']}  {offsets}  batches {part['batches']}  "
        f"bytes {part['start']}-{part['start'] + part['bytes']}  latest {_time(part['max_timestamp_ms'])}"
    )
    if "producer" in part:
        line += (
            f"  producer {part['producer']} epoch {part['producer_epoch']} sequence {part['base_sequence']}"
        )
    line += f"  DAMAGED: the batches {part['fault']}" if "fault" in part else "  crc ok"
    return [line, *(f"{'':16}{_record(record)}" for record in part.get("records", ()))]


def _record(record: Item) -> str:
    fields = [f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in record.items()]
    return " ".join(fields)


def _command(part: Item) -> str:
    """Describe a command in words."""
    fields = part["fields"]
    words = _WORDS.get(part["command"])
    return words(fields) if words else f"{part['command']} {json.dumps(fields)}"


def _pairs(rows: list[Any]) -> str:
    return ", ".join(f"stream {row[0]} to {row[1]}" for row in rows)


_WORDS: dict[str, Callable[[Item], str]] = {
    "CreateTopic": lambda f: (
        f"create topic {f['name']!r} with {f['partitions']} partitions, id {f['topic_id']}, "
        f"config {json.dumps(f['config'])}"
    ),
    "DeleteTopic": lambda f: f"delete the topic with id {f['topic_id']}",
    "AlterTopic": lambda f: f"set config of topic id {f['topic_id']} to {json.dumps(f['config'])}",
    "AddPartitions": lambda f: f"grow the topic with id {f['topic_id']} to {f['total']} partitions",
    "Trim": lambda f: f"remove stream {f['stream']} below offset {f['offset']} ({f['reason']})",
    "DeleteRecords": lambda f: (
        f"delete from stream {f['stream']} offsets "
        + ", ".join(f"{start}-{end - 1}" for start, end in f["ranges"])
    ),
    "RaiseCeilings": lambda f: f"raise ceilings: {_pairs(f['ceilings'])}",
    "MarkLost": lambda f: (
        f"mark offsets {f['start']}-{f['end'] - 1} of stream {f['stream']} lost ({f['reason']})"
    ),
    "AllocateProducer": lambda f: "allocate a producer id" + (f" for {f['owner']}" if f["owner"] else ""),
    "ExpireProducers": lambda f: f"remove producers idle since {_time(f['before_ms'])}",
    "CommitOffsets": lambda f: f"group {f['group']!r} commits offsets: {_pairs(f['offsets'])}",
    "DeleteOffsets": lambda f: f"group {f['group']!r} deletes its offsets of streams {f['streams'] or 'all'}",
    "Take": lambda f: f"group {f['group']!r} takes up to {f['limit']} records of stream {f['stream']}",
    "Boot": lambda f: (
        f"broker {f['broker']} ({f['node']}) boots" + (", after an unclean shutdown" if f["jump"] else "")
    ),
    "Halt": lambda f: f"broker {f['broker']} halts",
}


def _damage(item: Item) -> str:
    after = item.get("next_position")
    lost = ""
    if item.get("position") is not None:
        lost = f", from position {item['position']}" + (f" to {after - 1}" if after is not None else "")
    return f"{_span(item)}  DAMAGED: {item['what']}{lost}"


def _index(item: Item) -> str:
    copies = ", ".join(
        f"{name} copy {'whole' if item[f'{name}_copy'] == 'whole' else 'DAMAGED'}"
        for name in ("first", "second")
    )
    lines = [f"{_span(item)}  index of {item['extents']} extents: {copies}"]
    lines += [
        f"{'':12}stream {span['stream']}  offsets {span['start']}-{span['end'] - 1}  "
        f"{span['bytes']:,} bytes  latest {_time(span['max_timestamp_ms'])}"
        if span["bytes"]
        else f"{'':12}stream {span['stream']}  no records, continues at {span['end']}"
        for span in item["spans"]
    ]
    return "\n".join(lines)


def _repacked(item: Item) -> str:
    line = f"repacked file: {item['bytes']:,} bytes"
    if "first" in item:
        line += (
            f", replaces segments {item['first']} to {item['end'] - 1} of log {item['log']}… with its repack"
        )
    return line


def _extent(item: Item) -> str:
    line = (
        f"{_span(item)}  stream {item['stream']}  offsets {item['offset']}-{item['offset'] + item['count'] - 1}  "
        f"latest {_time(item['max_timestamp_ms'])}  "
    )
    line += "crc ok" if item["crc"] == "ok" else "DAMAGED"
    if "fault" in item:
        line += f"  UNREADABLE: the batches {item['fault']}"
    return "\n".join([line, *(f"{'':16}{_record(record)}" for record in item.get("records", ()))])


def _footer(item: Item) -> str:
    return f"{_span(item)}  footer: positions {item['first']}-{item['end_position'] - 1}"


def _space(item: Item) -> str:
    return f"{_span(item)}  zeros"


def _checkpoint(item: Item) -> str:
    if "position" not in item:
        return f"checkpoint of {item['bytes']:,} bytes"
    line = (
        f"checkpoint of all commits before position {item['position']}: {item['bytes']:,} bytes, "
        f"{item['state_bytes']:,} uncompressed"
    )
    return line + (f", {_time(item['time_ms'])}, digest {item['digest']}" if "digest" in item else "")


def _topic(item: Item) -> str:
    return (
        f"topic {item['name']!r}  {item['partitions']} partitions  id {item['id']}  "
        f"created {_time(item['created_ms'])}  config {json.dumps(item['config'])}"
    )


def _stream(item: Item) -> str:
    line = (
        f"stream {item['stream']}  {item['partition'] or 'deleted'}  "
        f"offsets {item['start']} to {item['end']}  {item['records']:,} records  {item['size']:,} bytes"
    )
    for hole in item.get("holes", ()):
        line += f"\n{'':12}offsets {hole['start']}-{hole['end'] - 1} {hole['reason']}"
    return line


def _group(item: Item) -> str:
    offsets = [f"{row['partition'] or row['stream']} at {row['offset']}" for row in item["offsets"]]
    return f"group {item['name']!r}  {', '.join(offsets)}"


def _broker(item: Item) -> str:
    return (
        f"broker {item['broker']} ({item['node']})  epoch {item['epoch']}  "
        f"last commit {item['last_commit_id']}" + ("  halted" if item["halted"] else "")
    )


_TEXTS: dict[str, Callable[[Item], str]] = {
    "segment": _segment,
    "commit": _commit,
    "damage": _damage,
    "space": _space,
    "index": _index,
    "footer": _footer,
    "repacked": _repacked,
    "extent": _extent,
    "checkpoint": _checkpoint,
    "topic": _topic,
    "stream": _stream,
    "group": _group,
    "broker": _broker,
}
