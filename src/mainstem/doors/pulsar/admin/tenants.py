"""Tenants: the first word of a namespace. One without namespaces is stored as the namespace of that word.

Its admin roles are access rules about the topics and groups of its namespaces."""

from __future__ import annotations

from mainstem.broker.access.rules import Operation
from mainstem.doors.http.transport.responses import Response
from mainstem.doors.pulsar.admin.call import (
    CLUSTER,
    CONFLICT,
    DONE,
    PRECONDITION_FAILED,
    AdminCall,
    AdminRefusal,
    answer,
)
from mainstem.doors.pulsar.admin.permissions import admin_roles, set_admin_roles
from mainstem.doors.pulsar.topic_names import shown_namespace

_PUBLIC = "public"  # always exists


def namespaces_seen(call: AdminCall) -> list[str]:
    """The visible namespaces whose names have two parts, as Pulsar clients name them."""
    return [name for name in _names_seen(call) if "/" in name]


def _names_seen(call: AdminCall) -> list[str]:
    return [shown_namespace(one.name) for one in call.broker.namespaces.all() if call.sees(one.name)]


def _tenants(call: AdminCall) -> list[str]:
    return sorted({name.split("/")[0] for name in _names_seen(call)} | {_PUBLIC})


async def list_tenants(call: AdminCall) -> Response:
    return answer(_tenants(call))


async def get_tenant(call: AdminCall, tenant: str) -> Response:
    call.check_cluster(Operation.DESCRIBE, "tenants")
    _check_exists(call, tenant)
    return answer({"adminRoles": admin_roles(call, tenant), "allowedClusters": [CLUSTER]})


async def create_tenant(call: AdminCall, tenant: str) -> Response:
    call.check_cluster(Operation.CREATE, "tenants")
    if tenant in _tenants(call):
        raise AdminRefusal(CONFLICT, "Tenant already exist")
    roles = _roles(call)
    changes_rules = bool(roles or admin_roles(call, tenant))
    if changes_rules:  # before anything is created
        call.check_cluster(Operation.ALTER, "permissions")
    await call.broker.namespaces.create(tenant)
    if changes_rules:
        await set_admin_roles(call, tenant, roles)
    return DONE


async def update_tenant(call: AdminCall, tenant: str) -> Response:
    call.check_cluster(Operation.ALTER, "tenants")
    _check_exists(call, tenant)
    await set_admin_roles(call, tenant, _roles(call))
    return DONE


async def delete_tenant(call: AdminCall, tenant: str) -> Response:
    call.check_cluster(Operation.ALTER, "tenants")
    _check_exists(call, tenant)
    if tenant == _PUBLIC or any(name.split("/")[0] == tenant for name in namespaces_seen(call)):
        raise AdminRefusal(CONFLICT, "The tenant still has active namespaces")
    await call.broker.namespaces.delete(tenant)
    await set_admin_roles(call, tenant, [])
    return DONE


def _check_exists(call: AdminCall, tenant: str) -> None:
    if tenant not in _tenants(call):
        raise AdminRefusal(404, "Tenant does not exist")


def _roles(call: AdminCall) -> list[str]:
    """The admin roles of the body. Raises AdminRefusal for clusters that do not exist."""
    body = call.fields()
    others = [str(name) for name in body.get("allowedClusters") or () if name != CLUSTER]
    if others:
        raise AdminRefusal(PRECONDITION_FAILED, f"Clusters do not exist: {', '.join(others)}")
    return sorted({str(role) for role in body.get("adminRoles") or ()})
