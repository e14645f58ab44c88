"""Who sends the commands of one connection, and what they may do."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from mainstem.broker.access.audit import Outcome
from mainstem.broker.access.certificates import by_certificate
from mainstem.broker.access.principal import ANONYMOUS, UNRESTRICTED, Principal
from mainstem.broker.access.rules import CLUSTER_NAME, Operation, ResourceType
from mainstem.broker.broker import Broker
from mainstem.broker.namespaces import NamespaceView, qualify_id, shown_id, split, view_of
from mainstem.errors import Forbidden, Unauthorized


class PulsarCaller:
    def __init__(
        self,
        broker: Broker,
        host: str,
        *,
        insecure: bool,
        view: NamespaceView | None,
        certificate: Mapping[str, Any] | None = None,
    ) -> None:
        self._broker = broker
        self._certificate = certificate  # that the client proved to have
        self._insecure = insecure
        self._listener_view = view
        self.view = view  # of the namespace that the listener or the principal is bound to
        self.host = host
        self.principal: Principal = ANONYMOUS
        self.expires_ms: int | None = None  # when the client has to authenticate again

    async def authenticate(self, method: str, data: bytes) -> None:
        """By a token (an API key or an OAuth token), a user and its password, or a certificate.

        Raises Unauthorized."""
        authentication = self._broker.authentication
        found: Principal | None = None
        self.expires_ms = None
        if method == "tls":
            found = by_certificate(self._certificate)
        with suppress(UnicodeDecodeError):
            secret = data.decode().strip()
            if method == "token" and secret:
                found = authentication.by_key(secret.encode())
                if found is not None:
                    self.expires_ms = authentication.key_expires_ms(found)
                elif authentication.tokens is not None:
                    found, self.expires_ms = await authentication.by_token(
                        secret, self._broker.clock.now_ms()
                    )
            elif method == "basic" and ":" in secret:
                user, _, password = secret.partition(":")
                found = await authentication.by_password(user, password)
        if found is None:
            wrong = bool(data) and method in (
                "token",
                "basic",
            )  # not the same as a client without credentials
            if self._broker.access.restricted and (wrong or not self._insecure):
                raise Unauthorized(
                    "the client has to authenticate with a token, a password or a certificate that this server knows"
                )
            self.principal = UNRESTRICTED if self._broker.access.restricted else ANONYMOUS
            return
        if found.namespace:
            if self._listener_view is not None and self._listener_view.namespace != found.namespace:
                raise Unauthorized("the token belongs to another namespace than this address")
            self.view = view_of(found.namespace)
        self.principal = found

    def adopt(self, principal: Principal) -> None:
        """Another door authenticated the client."""
        self.principal = principal
        if principal.namespace:
            self.view = view_of(principal.namespace)

    @property
    def access_state(self) -> int:
        """Changes whenever a decision may have changed."""
        return self._broker.access.state

    def may(self, operation: Operation, topic: str, kind: ResourceType = ResourceType.TOPIC) -> bool:
        return self._broker.access.allows(self.principal, self.host, operation, kind, topic)

    def check(self, operation: Operation, topic: str) -> None:
        """Raises Forbidden."""
        if not self.may(operation, topic):
            self.audit(operation.name, topic, "denied")
            raise Forbidden(f"{self.principal.name} may not {operation.name} topic {topic!r}")

    def may_use_subscription(self, topic: str, name: str, operation: Operation = Operation.READ) -> bool:
        """A subscription is a group to the access rules."""
        stored = qualify_id(split(topic)[0], name)
        return self.may(operation, shown_id(stored), ResourceType.GROUP)

    def check_subscription(self, topic: str, name: str) -> None:
        """Raises Forbidden."""
        if not self.may_use_subscription(topic, name):
            self.audit(Operation.READ.name, topic, "denied")
            raise Forbidden(f"{self.principal.name} may not READ with group {name!r}")

    def consumed(self, topic: str, subscription: str, size: int, messages: int) -> int:
        """Count what a consumer is sent. Returns for how many milliseconds it should be sent nothing more."""
        rates = self._broker.rates
        if not rates.stored.active:
            return 0
        group = qualify_id(split(topic)[0], subscription)
        return rates.consume(self.principal, topic, group, size, messages)

    def check_create(self, topic: str) -> None:
        """Raises Forbidden."""
        if not self.may(Operation.CREATE, CLUSTER_NAME, ResourceType.CLUSTER):
            self.check(Operation.CREATE, topic)

    def audit(self, operation: str, topic: str, outcome: Outcome) -> None:
        """Note in the audit log what the client did, or was denied."""
        self._broker.audit.record(self.principal, self.host, "pulsar", operation, "topic", topic, outcome)
