"""API keys, users and access rules over HTTP."""

from __future__ import annotations

from collections.abc import Sequence

from mainstem.api import routes
from mainstem.api.security import (
    KeyBody,
    KeyCreated,
    KeyDescription,
    RuleBody,
    RulesBody,
    S3CredentialsBody,
    S3CredentialsIssued,
    UserBody,
    UserChanged,
    UserDescription,
)
from mainstem.client.transport import Calls


class SecurityCalls(Calls):
    async def keys(self) -> list[KeyDescription]:
        """The stored API keys, without their secrets.

        Example:
            for key in client.keys(): print(key.id, key.principal)
        """
        return (await self._transport.call(routes.LIST_KEYS)).keys

    async def create_key(
        self,
        name: str = "",
        *,
        scopes: str = "",
        prefixes: Sequence[str] = (),
        namespace: str = "",
        ttl_ms: int = 0,
    ) -> KeyCreated:
        """Create an API key. The result has its secret, which the server does not show again.

        Example:
            print(client.create_key("billing", scopes="rw", prefixes=["billing."]).secret)
        """
        body = KeyBody(name, scopes, list(prefixes), namespace, ttl_ms)
        return await self._transport.call(routes.CREATE_KEY, body=body)

    async def s3_credentials(self, *, ttl_ms: int = 0) -> S3CredentialsIssued:
        """Credentials of the S3 door for this client: lasting ones of its API key, or short-lived ones.

        Example:
            print(client.s3_credentials(ttl_ms=3_600_000).access_key_id)
        """
        body = S3CredentialsBody(ttl_ms)
        return await self._transport.call(routes.ISSUE_S3_CREDENTIALS, body=body)

    async def rotate_key(self, id: str) -> KeyCreated:
        """Replace the secret of an API key; the old one is invalid at once.

        Example:
            print(client.rotate_key("6b1f0c2d9e3a").secret)
        """
        return await self._transport.call(routes.ROTATE_KEY, id)

    async def revoke_key(self, id: str) -> None:
        """Revoke an API key.

        Example:
            client.revoke_key("6b1f0c2d9e3a")
        """
        await self._transport.call(routes.REVOKE_KEY, id)

    async def users(self) -> list[UserDescription]:
        """The users that have a password.

        Example:
            for user in client.users(): print(user.user)
        """
        return (await self._transport.call(routes.LIST_USERS)).users

    async def put_user(self, user: str, password: str | None = None) -> UserChanged:
        """Create a user or replace its password. Without `password` the server generates one.

        Example:
            print(client.put_user("ann").password)
        """
        return await self._transport.call(routes.PUT_USER, user, body=UserBody(password))

    async def delete_user(self, user: str) -> None:
        """Delete a user.

        Example:
            client.delete_user("ann")
        """
        await self._transport.call(routes.DELETE_USER, user)

    async def rules(self) -> list[RuleBody]:
        """The access rules.

        Example:
            for rule in client.rules(): print(rule.principal, rule.operation, rule.name)
        """
        return (await self._transport.call(routes.LIST_RULES)).rules

    async def add_rules(self, *rules: RuleBody) -> None:
        """Add access rules: all of them, or none.

        Example:
            client.add_rules(RuleBody("User:ann", "read", "topic", "orders"))
        """
        await self._transport.call(routes.ADD_RULES, body=RulesBody(list(rules)))

    async def delete_rules(self, *rules: RuleBody) -> list[RuleBody]:
        """Delete access rules. Returns those that existed.

        Example:
            client.delete_rules(*client.rules())
        """
        return (await self._transport.call(routes.DELETE_RULES, body=RulesBody(list(rules)))).rules
