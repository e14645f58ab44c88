"""What `consume --decode` prints can be produced again."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest

from mainstem.cli.schemas import _plain
from mainstem.errors import UndecodablePayload
from mainstem.schemas.avro import AvroSchema


def _logical(type: str, name: str, **more: int) -> dict[str, Any]:
    return {"type": type, "logicalType": name, **more}


_MONEY = {
    "type": "record",
    "name": "Money",
    "fields": [{"name": "sum", "type": _logical("bytes", "decimal", precision=9, scale=2)}],
}
_PAIR = [{"name": "a", "type": _MONEY}, {"name": "b", "type": ["null", "Money"]}]
_CASES: list[tuple[Any, Any]] = [
    ("bytes", b"\x00\xff\x7f"),
    ({"type": "fixed", "name": "f", "size": 3}, b"\x00\xffa"),
    (_logical("bytes", "decimal", precision=9, scale=2), Decimal("-12.50")),
    (_logical("int", "date"), date(2026, 11, 19)),
    (_logical("int", "time-millis"), time(1, 2, 3, 4000)),
    (_logical("long", "time-micros"), time(1, 2, 3, 4)),
    (_logical("long", "timestamp-millis"), datetime(2026, 11, 19, 1, 2, 3, 4000, UTC)),
    (_logical("long", "timestamp-micros"), datetime(2026, 11, 19, 1, 2, 3, 4, UTC)),
    (_logical("long", "local-timestamp-micros"), datetime(2026, 11, 19, 1, 2, 3, 4)),  # it has none
    (["null", _logical("int", "date")], date(2026, 11, 19)),
    (["null", _logical("int", "date")], None),
    (["null", "bytes", "string"], "2026-11-19"),
    ({"type": "array", "items": _MONEY}, [{"sum": Decimal("1.00")}, {"sum": Decimal("0.01")}]),
    ({"type": "map", "values": ["null", "bytes"]}, {"a": b"\xfe", "b": None}),
    (
        {"type": "record", "name": "R", "fields": _PAIR},
        {"a": {"sum": Decimal("1.25")}, "b": {"sum": Decimal("2.50")}},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "value"), _CASES)
def test_a_printed_value_is_encoded_as_it_was(schema: Any, value: Any) -> None:
    parsed = AvroSchema(json.dumps(schema))
    payload = parsed.encode(value)
    printed = json.loads(json.dumps(parsed.decode(payload), default=_plain))
    assert parsed.encode(parsed.from_json(printed)) == payload


def test_a_number_is_a_decimal_too() -> None:
    parsed = AvroSchema(json.dumps(_MONEY))
    assert parsed.from_json({"sum": 12.5}) == {"sum": Decimal("12.5")}


@pytest.mark.parametrize("wrong", ["a lot", True, [1], "€"])
def test_a_value_that_does_not_fit_is_named_by_its_field(wrong: Any) -> None:
    parsed = AvroSchema(json.dumps(_MONEY))
    with pytest.raises(UndecodablePayload, match=r"Money\.sum"):
        parsed.encode(parsed.from_json({"sum": wrong}))
