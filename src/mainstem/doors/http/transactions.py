"""Transactions: which are open, since when, and ending one that hangs."""

from __future__ import annotations

from mainstem.broker.transactions import TransactionInfo
from mainstem.doors.http.requests import HttpRequest
from mainstem.doors.http.responses import Response, reply
from mainstem.ledger.transactions import TransactionPhase


async def list_transactions(request: HttpRequest) -> Response:
    """Every transactional id, and its present or last transaction."""
    now_ms = request.broker.clock.now_ms()
    shown = [
        _row(info, now_ms)
        for info in request.broker.transactions.all()
        if all(request.key.allows(topic) for topic in info.partitions)
    ]
    return reply({"transactions": shown, "performance": request.performance()})


async def abort_transaction(request: HttpRequest) -> Response:
    """Abort what a transactional id has open, and fence its producer."""
    id = request.parameters["transaction"]
    for topic in request.broker.transactions.describe(id).partitions:
        request.require_name(topic)
    aborted = await request.broker.transactions.abort(id)
    return reply({"transaction": id, "aborted": aborted, "performance": request.performance()})


def _row(info: TransactionInfo, now_ms: int) -> dict[str, object]:
    is_open = info.phase is TransactionPhase.OPEN
    open_ms = max(0, now_ms - info.started_ms) if is_open else 0
    return {
        "transaction": info.id,
        "phase": info.phase.name.lower(),
        "producer": info.producer,
        "epoch": info.epoch,
        "timeout_ms": info.timeout_ms,
        "started_ms": None if info.started_ms < 0 else info.started_ms,
        "open_ms": open_ms,
        # Past half of its time it holds readers of committed records back for long already.
        "hanging": is_open and open_ms * 2 > info.timeout_ms,
        "partitions": [{"topic": topic, "partitions": numbers} for topic, numbers in info.partitions.items()],
    }
