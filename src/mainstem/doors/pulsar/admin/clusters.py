"""Clusters and brokers: there is one cluster, whose brokers share one log."""

from __future__ import annotations

from mainstem.broker.access.rules import Operation
from mainstem.doors.http.transport.responses import Response
from mainstem.doors.pulsar.admin.call import (
    CLUSTER,
    DONE,
    NOT_ALLOWED,
    AdminCall,
    AdminRefusal,
    answer,
    text_answer,
)

VERSION = "4.0.0"  # of Pulsar, whose API this is


async def list_clusters(call: AdminCall) -> Response:
    return answer([CLUSTER])


async def get_cluster(call: AdminCall, cluster: str) -> Response:
    _check_cluster_name(cluster)
    url = call.lookup.broker_url("")
    tls = url.startswith("pulsar+ssl")
    return answer(
        {
            "serviceUrl": "",
            "serviceUrlTls": "",
            "brokerServiceUrl": "" if tls else url,
            "brokerServiceUrlTls": url if tls else "",
            "brokerClientTlsEnabled": False,
            "tlsAllowInsecureConnection": False,
            "migrated": False,
        }
    )


async def change_cluster(call: AdminCall, cluster: str) -> Response:
    raise AdminRefusal(NOT_ALLOWED, f"there is one cluster, {CLUSTER}, and it is made by the server")


async def list_peers(call: AdminCall, cluster: str) -> Response:
    _check_cluster_name(cluster)
    return answer([])


async def list_failure_domains(call: AdminCall, cluster: str) -> Response:
    _check_cluster_name(cluster)
    return answer({})


def _check_cluster_name(cluster: str) -> None:
    if cluster != CLUSTER:
        raise AdminRefusal(404, f"Cluster does not exist: there is one, {CLUSTER}")


async def list_brokers(call: AdminCall, cluster: str = CLUSTER) -> Response:
    _check_cluster_name(cluster)
    return answer(call.lookup.brokers())


async def get_leader(call: AdminCall) -> Response:
    """Brokers have no leader: this one answers."""
    name = call.lookup.broker_url("").partition("://")[2]
    return answer({"brokerId": name, "serviceUrl": call.lookup.broker_url("")})


async def get_health(call: AdminCall) -> Response:
    return text_answer("ok")


async def get_version(call: AdminCall) -> Response:
    return text_answer(VERSION)


async def list_settings(call: AdminCall) -> Response:
    """Pulsar's settings that can change at run time: none."""
    return answer([])


async def get_settings(call: AdminCall) -> Response:
    return answer({})


async def get_broker_stats(call: AdminCall, *rest: str) -> Response:
    raise AdminRefusal(404, "there are no broker-stats here: GET /metrics of this address has the metrics")


async def check_backlog_quotas(call: AdminCall) -> Response:
    """Now, instead of at the next time of the clock."""
    call.check_cluster(Operation.ALTER, "backlog quotas")
    await call.broker.backlogs.skip()
    await call.broker.backlogs.refuse()
    return DONE
