"""Namespaces: list, create, change and delete them."""

from __future__ import annotations

import msgspec

from mainstem.api.namespaces import (
    NamespaceConfigured,
    NamespaceDeletion,
    NamespaceDescriptionBody,
    NamespaceReport,
    NamespaceReports,
)
from mainstem.broker.namespaces import TopicNamespace
from mainstem.doors.http.transport.requests import HttpRequest
from mainstem.doors.http.transport.responses import Response, reply
from mainstem.errors import NamespaceInUse, TopicNotFound

_body = msgspec.json.Decoder(NamespaceDescriptionBody)


async def list_namespaces(request: HttpRequest) -> Response:
    """List the namespaces with their policies."""
    found = [_report(request, namespace) for namespace in request.broker.namespaces.all()]
    return reply(NamespaceReports(found, request.performance()))


async def get_namespace(request: HttpRequest) -> Response:
    """Get the policies of a namespace, and how much it holds."""
    return reply(_report(request, request.broker.namespaces.get(request.parameters["name"])))


async def put_namespace(request: HttpRequest) -> Response:
    """Create a namespace, or change some of its policies."""
    body = request.json(_body)
    namespaces, name = request.broker.namespaces, request.parameters["name"]
    changes = {
        field: value
        for field in body.__struct_fields__
        if (value := getattr(body, field)) is not msgspec.UNSET
    }
    if "principals" in changes:
        changes["principals"] = tuple(sorted(set(changes["principals"])))
    created = not namespaces.exists(name)
    if created:
        changed = await namespaces.create(name, namespaces.new_policies(changes))
    else:
        changed = await namespaces.alter(name, changes)
    configured = NamespaceConfigured(created, _report(request, changed), request.performance())
    return reply(configured, 201 if created else 200)


async def delete_namespace(request: HttpRequest) -> Response:
    """Delete a namespace. With `force`, its topics and their records too."""
    broker, name = request.broker, request.parameters["name"]
    topics = broker.namespaces.topics(name)
    if topics and not request.flag("force", False):
        raise NamespaceInUse(name, len(topics))
    deleted = 0
    for topic in topics:
        await broker.routers.forget(topic.name)
        try:
            await broker.delete_topic(topic.name)
        except TopicNotFound:
            continue  # another request was first
        deleted += 1
    await broker.namespaces.delete(name)
    return reply(NamespaceDeletion(name, deleted, request.performance()))


def _report(request: HttpRequest, namespace: TopicNamespace) -> NamespaceReport:
    topics, partitions = request.broker.namespaces.counts(namespace.name)
    return NamespaceReport(
        namespace=namespace.name,
        **msgspec.structs.asdict(namespace.policies),
        topics_total=topics,
        partitions_total=partitions,
        bytes_total=request.broker.namespaces.bytes(namespace.name),
        created_ms=namespace.created_ms,
    )
