"""AlterUserScramCredentials: set and remove users' passwords."""

from __future__ import annotations

from kio.schema.alter_user_scram_credentials.v0.request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kio.schema.alter_user_scram_credentials.v0.response import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from kio.schema.errors import ErrorCode

from mainstem import limits
from mainstem.broker.access.passwords import keys_of
from mainstem.broker.access.service import KEY_BYTES, DeleteScramCredential, PutScramCredential
from mainstem.doors.kafka.apis.bulk import DONE, ItemRefused, ItemResult, outcome_of, repeated, side_by_side
from mainstem.doors.kafka.transport.api import Api, Call
from mainstem.doors.kafka.transport.throttle import NO_THROTTLE
from mainstem.errors import MainstemError

_TWICE = ItemResult(ErrorCode.duplicate_resource, "a user's credential is changed twice in one request")

_Change = ScramCredentialDeletion | ScramCredentialUpsertion


async def handle(call: Call, request: AlterUserScramCredentialsRequest) -> AlterUserScramCredentialsResponse:
    changes: dict[str, list[_Change]] = {}
    listed: list[_Change] = [*request.deletions, *request.upsertions]
    for change in listed:
        changes.setdefault(change.name, []).append(change)

    async def alter(user: str) -> AlterUserScramCredentialsResult:
        outcome = await _outcome(call, changes[user])
        return AlterUserScramCredentialsResult(
            user=user, error_code=outcome.code, error_message=outcome.message
        )

    results = await side_by_side(alter, list(changes))
    return AlterUserScramCredentialsResponse(throttle_time=NO_THROTTLE, results=tuple(results))


async def _outcome(call: Call, changes: list[_Change]) -> ItemResult:
    """Apply one user's changes, after checking all of them."""
    if repeated(change.mechanism for change in changes):
        return _TWICE
    try:
        commands = [_command(call, change) for change in changes]
        for command in commands:
            await call.context.broker.security.change_credential(command)
    except (ItemRefused, MainstemError) as error:
        return outcome_of(error)
    return DONE


def _command(call: Call, change: _Change) -> PutScramCredential | DeleteScramCredential:
    if change.mechanism not in KEY_BYTES:
        raise ItemRefused(ErrorCode.unsupported_sasl_mechanism, f"unknown SCRAM mechanism {change.mechanism}")
    if not 0 < len(change.name) <= limits.NAME_CHARS_MAX:
        raise ItemRefused(ErrorCode.unacceptable_credential, "a user needs a name, and this one is too long")
    if isinstance(change, ScramCredentialDeletion):
        if call.context.broker.security.credential(change.name, change.mechanism) is None:
            raise ItemRefused(ErrorCode.resource_not_found, "the user has no such credential")
        return DeleteScramCredential(change.name, change.mechanism)
    if not limits.SCRAM_ITERATIONS_MIN <= change.iterations <= limits.SCRAM_ITERATIONS_MAX:
        raise ItemRefused(
            ErrorCode.unacceptable_credential,
            f"SCRAM takes {limits.SCRAM_ITERATIONS_MIN} to {limits.SCRAM_ITERATIONS_MAX} iterations",
        )
    if not 0 < len(change.salt) <= limits.SCRAM_SALT_BYTES_MAX or not change.salted_password:
        raise ItemRefused(ErrorCode.unacceptable_credential, "a salt and a salted password are needed")
    keys = keys_of(change.mechanism, change.salted_password)
    return PutScramCredential(
        change.name, change.mechanism, change.salt, change.iterations, keys.stored, keys.server
    )


API = Api(51, 0, 0, handle)
