"""The principal of one connection, and what it may do."""

from __future__ import annotations

from contextlib import suppress

from mainstem.broker.access.audit import Outcome
from mainstem.broker.access.principal import ANONYMOUS, UNRESTRICTED, Principal
from mainstem.broker.access.rules import CLUSTER_NAME, Operation, ResourceType
from mainstem.broker.broker import Broker
from mainstem.broker.namespaces import NamespaceView, view_of
from mainstem.doors.text.requests import AuthRequest
from mainstem.errors import Unauthorized


class TextCaller:
    def __init__(
        self, broker: Broker, host: str, *, insecure: bool, view: NamespaceView | None = None
    ) -> None:
        self._broker = broker
        self._listener_view = view
        self.view = view  # of the namespace that the listener or the principal is bound to
        self._host = host
        self._insecure = insecure
        self._proved: Principal | None = None

    @property
    def principal(self) -> Principal | None:
        """None: the client has to authenticate first."""
        if self._proved is not None:
            return self._proved
        if not self._broker.access.restricted:
            return ANONYMOUS
        return UNRESTRICTED if self._insecure else None

    async def authenticate(self, request: AuthRequest) -> bool:
        """By an API key, a token, or a user and password. Without restrictions, any credentials are accepted."""
        authentication = self._broker.authentication
        found: Principal | None = None
        with suppress(Unauthorized):
            if request.user:
                found = await authentication.by_password(request.user, request.secret)
            else:
                found = authentication.by_key(request.secret.encode())
                if found is None and authentication.tokens is not None:
                    found, _ = await authentication.by_token(request.secret, self._broker.clock.now_ms())
        if found is not None and found.namespace:
            if self._listener_view is not None and self._listener_view.namespace != found.namespace:
                return False
            self.view = view_of(found.namespace)
        elif found is not None:
            self.view = self._listener_view
        if found is not None:
            self._proved = found
        return found is not None or not self._broker.access.restricted

    def audit(self, operation: str, topic: str, outcome: Outcome) -> None:
        """Note in the audit log what the client did, or was denied. Without a topic it is about the server."""
        kind, name = ("topic", topic) if topic else ("cluster", CLUSTER_NAME)
        self._broker.audit.record(
            self.principal or ANONYMOUS, self._host, "text", operation, kind, name, outcome
        )

    def may(self, operation: Operation, topic: str) -> bool:
        return self._allows(operation, ResourceType.TOPIC, topic)

    def may_create(self, topic: str) -> bool:
        return self._allows(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME) or self.may(
            Operation.CREATE, topic
        )

    def _allows(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        principal = self.principal
        return principal is not None and self._broker.access.allows(
            principal, self._host, operation, kind, name
        )
