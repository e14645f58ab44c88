"""Find a text in the bytes of files: as it is, and inside compressed record batches, Parquet and Avro files."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from pathlib import Path

from crc32c import crc32c

from mainstem.records.decoding import decode_records
from mainstem.records.header import CRC_AT, CRC_COVERS_FROM, HEADER_BYTES

_MAGIC_AT = 16
_BOUND_BYTES = 6


def files_with(contents: Mapping[Path, bytes], text: bytes) -> list[str]:
    """The names of the files that hold the text."""
    return [str(path) for path, data in sorted(contents.items()) if _holds(path, data, text)]


def directory_contents(*folders: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for folder in folders for path in folder.rglob("*") if path.is_file()}


def _holds(path: Path, data: bytes, text: bytes) -> bool:
    if text in data:
        return True
    if path.suffix == ".parquet":
        return _in_parquet(data, text)
    if path.suffix == ".avro":
        return _in_avro(data, text)
    return any(text in batch for batch in _batches(data))


def _batches(data: bytes) -> Iterator[bytes]:
    """The records of everything that is a whole record batch, wherever it begins."""
    at = data.find(b"\x02", _MAGIC_AT)
    while at >= 0:
        start = at - _MAGIC_AT
        length = int.from_bytes(data[start + 8 : start + 12], "big") + 12
        if HEADER_BYTES <= length <= len(data) - start:
            batch = data[start : start + length]
            if crc32c(batch[CRC_COVERS_FROM:]) == int.from_bytes(batch[CRC_AT : CRC_AT + 4], "big"):
                yield b"\0".join(
                    b"%b=%b %b" % (record.key or b"", record.value or b"", repr(record.headers).encode())
                    for record in decode_records(batch)
                )
        at = data.find(b"\x02", at + 1)


def _in_parquet(data: bytes, text: bytes) -> bool:
    import pyarrow.parquet as pq

    file = pq.ParquetFile(io.BytesIO(data))
    return text in repr(file.read().to_pylist()).encode() or text in repr(file.metadata.to_dict()).encode()


def _in_avro(data: bytes, text: bytes) -> bool:
    """Iceberg's manifests hold the bounds of columns: the first characters of values."""
    import fastavro

    return text[:_BOUND_BYTES] in repr(list(fastavro.reader(io.BytesIO(data)))).encode()
