"""The brokers that share the log, as one of them sees them."""

from __future__ import annotations

from mainstem.doors.http.requests import HttpRequest
from mainstem.doors.http.responses import Response, reply


async def get_cluster(request: HttpRequest) -> Response:
    """The brokers that share the log, as this one sees them."""
    broker = request.broker
    cluster, log = broker.cluster, broker.log
    return reply(
        {
            "cluster": log.identity.hex(),
            "shared": cluster.shared,
            "broker": cluster.broker,
            "epoch": log.epoch,
            "position": log.ledger.position,
            "refusal": cluster.refusal,
            "upkeep": cluster.broker_for("upkeep"),
            "clock_off_ms": cluster.clock_off_ms,
            "brokers": [
                {
                    "broker": member.broker,
                    "epoch": member.epoch,
                    "node": member.node,
                    "zone": member.zone,
                    "addresses": dict(member.addresses),
                    "silent_s": round(cluster.silent_s(member.broker), 3),
                }
                for member in cluster.members()
            ],
        }
    )
