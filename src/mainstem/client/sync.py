"""The client over HTTP, for programs without an event loop: `mainstem.Client`."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar

from mainstem.client.asynchronous import AsyncClient
from mainstem.client.consumer import Consumer
from mainstem.client.loop import IteratorSteps, LoopThread
from mainstem.client.producer import Producer
from mainstem.client.sync_worker import Worker
from mainstem.client.transactions import TransactionContext
from mainstem.client.transport import TIMEOUT_S, Verify
from mainstem.errors import Closed

P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A")


def _waited(
    method: Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Client, P], T]:
    """Wrap a method of the asynchronous client: wait for its result."""

    @functools.wraps(method)
    def call(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._thread.call(method(self._client, *args, **kwargs))

    return call


def _wrapped(
    method: Callable[Concatenate[AsyncClient, P], A], kind: Callable[[LoopThread, A], T]
) -> Callable[Concatenate[Client, P], T]:
    """Wrap the object that the method returns for use from threads."""

    @functools.wraps(method)
    def call(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return kind(self._thread, method(self._client, *args, **kwargs))

    return call


def _iterate_pages(
    method: Callable[Concatenate[AsyncClient, P], AsyncGenerator[list[T]]],
    described_by: Callable[..., object],
) -> Callable[Concatenate[Client, P], Iterator[T]]:
    """The items of an asynchronous iterator of lists, with one call to the other thread per list, not per item."""

    @functools.wraps(described_by)
    def call(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        for items in self._iterate(method(self._client, *args, **kwargs)):
            yield from items

    return call


class Client:
    """A server's topics, records, queues, routers and groups. Thread-safe.

    `url`: of the server; default MAINSTEM_URL, then http://127.0.0.1:4000. `api_key`: default MAINSTEM_API_KEY.
    `timeout`: the maximum seconds of a call, retries included. The client retries lost connections and busy
    servers (429, 503) unless `retries` is False; every call is safe to retry, writes because of their idempotency
    keys. `verify`: the certificate file of the authority that signed the server's certificate, an `ssl.SSLContext`
    (for a client certificate), or False to trust any server.

    Example:
        with mainstem.Client() as client:
            client.produce("orders", {"id": 1})
            for record in client.read("orders"):
                print(record.value)
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        timeout: float = TIMEOUT_S,
        retries: bool = True,
        verify: Verify = True,
        namespace: str | None = None,
    ) -> None:
        self._client = AsyncClient(
            url, api_key=api_key, timeout=timeout, retries=retries, verify=verify, namespace=namespace
        )
        self._thread = LoopThread("this client is closed: create another one")

    @property
    def url(self) -> str:
        return self._client.url

    health = _waited(AsyncClient.health)
    cluster = _waited(AsyncClient.cluster)

    create_topic = _waited(AsyncClient.create_topic)
    ensure_topic = _waited(AsyncClient.ensure_topic)
    topic = _waited(AsyncClient.topic)
    topic_settings = _waited(AsyncClient.topic_settings)
    topics = _waited(AsyncClient.topics)
    topic_sizes = _waited(AsyncClient.topic_sizes)
    alter_topic = _waited(AsyncClient.alter_topic)
    change_settings = _waited(AsyncClient.change_settings)
    delete_topic = _waited(AsyncClient.delete_topic)

    produce = _waited(AsyncClient.produce)
    produce_many = _waited(AsyncClient.produce_many)
    produce_batch = _waited(AsyncClient.produce_batch)
    producer = _wrapped(AsyncClient.producer, Producer)
    page = _waited(AsyncClient.page)
    read = _iterate_pages(AsyncClient.pages, AsyncClient.read)
    watch = _iterate_pages(AsyncClient.frames, AsyncClient.watch)
    batches = _waited(AsyncClient.batches)
    offset_at = _waited(AsyncClient.offset_at)
    read_arrow = _waited(AsyncClient.read_arrow)
    read_pandas = _waited(AsyncClient.read_pandas)
    read_polars = _waited(AsyncClient.read_polars)
    delete_records = _waited(AsyncClient.delete_records)
    sql = _waited(AsyncClient.sql)
    sql_json = _waited(AsyncClient.sql_json)
    erase = _waited(AsyncClient.erase)
    erasure = _waited(AsyncClient.erasure)
    erasures = _waited(AsyncClient.erasures)

    claim = _waited(AsyncClient.claim)
    ack = _waited(AsyncClient.ack)
    nack = _waited(AsyncClient.nack)
    extend = _waited(AsyncClient.extend)
    worker = _wrapped(AsyncClient.worker, Worker)

    put_router = _waited(AsyncClient.put_router)
    router = _waited(AsyncClient.router)
    routers = _waited(AsyncClient.routers)
    delete_router = _waited(AsyncClient.delete_router)

    consumer = _wrapped(AsyncClient.consumer, Consumer)
    transaction = _wrapped(AsyncClient.transaction, TransactionContext)
    groups = _waited(AsyncClient.groups)
    group = _waited(AsyncClient.group)
    reset_group = _waited(AsyncClient.reset_group)
    commit_offsets = _waited(AsyncClient.commit_offsets)
    delete_group = _waited(AsyncClient.delete_group)

    rates = _waited(AsyncClient.rates)
    set_rate = _waited(AsyncClient.set_rate)
    remove_rate = _waited(AsyncClient.remove_rate)

    table = _waited(AsyncClient.table)
    put_table = _waited(AsyncClient.put_table)

    pipelines = _waited(AsyncClient.pipelines)

    backup = _waited(AsyncClient.backup)

    namespaces = _waited(AsyncClient.namespaces)
    namespace = _waited(AsyncClient.namespace)
    put_namespace = _waited(AsyncClient.put_namespace)
    delete_namespace = _waited(AsyncClient.delete_namespace)
    keys = _waited(AsyncClient.keys)
    create_key = _waited(AsyncClient.create_key)
    s3_credentials = _waited(AsyncClient.s3_credentials)
    rotate_key = _waited(AsyncClient.rotate_key)
    revoke_key = _waited(AsyncClient.revoke_key)
    users = _waited(AsyncClient.users)
    put_user = _waited(AsyncClient.put_user)
    delete_user = _waited(AsyncClient.delete_user)
    rules = _waited(AsyncClient.rules)
    add_rules = _waited(AsyncClient.add_rules)
    delete_rules = _waited(AsyncClient.delete_rules)

    def _iterate(self, lists: AsyncGenerator[list[T]]) -> Iterator[list[T]]:
        steps = IteratorSteps(lists)
        try:
            while (items := self._thread.call(steps.next())) is not None:
                yield items
        finally:
            with contextlib.suppress(Closed):  # the client closes its streams
                self._thread.call(steps.close())

    def close(self) -> None:
        """Close the connections. Idempotent."""
        self._thread.close(self._client.close())

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
