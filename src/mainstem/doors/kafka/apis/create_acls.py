"""CreateAcls: add access rules."""

from __future__ import annotations

from kio.schema.create_acls.v3.request import AclCreation, CreateAclsRequest
from kio.schema.create_acls.v3.response import AclCreationResult, CreateAclsResponse
from kio.schema.errors import ErrorCode

from mainstem.broker.access.rules import CLUSTER_NAME, ResourceType
from mainstem.broker.access.service import AccessRule, fault
from mainstem.doors.kafka.apis.bulk import DONE, ItemRefused, ItemResult, outcome_of
from mainstem.doors.kafka.security.authorizer import NO_AUTHORIZER, full_rule
from mainstem.doors.kafka.transport.api import Api, Call
from mainstem.doors.kafka.transport.throttle import NO_THROTTLE
from mainstem.errors import MainstemError


async def handle(call: Call, request: CreateAclsRequest) -> CreateAclsResponse:
    outcomes = [NO_AUTHORIZER] * len(request.creations)
    if call.context.access.enforced:
        outcomes = await _create(call, request)
    return CreateAclsResponse(
        throttle_time=NO_THROTTLE,
        results=tuple(
            AclCreationResult(error_code=outcome.code, error_message=outcome.message) for outcome in outcomes
        ),
    )


async def _create(call: Call, request: CreateAclsRequest) -> list[ItemResult]:
    """Store the valid rules in one command."""
    rules: list[AccessRule] = []
    outcomes: list[ItemResult] = []
    for creation in request.creations:
        try:
            rules.append(full_rule(call.view, _rule(creation)))
            outcomes.append(DONE)
        except ItemRefused as error:
            outcomes.append(outcome_of(error))
    if rules:
        try:
            await call.context.broker.security.put_rules(rules)
        except MainstemError as error:
            failed = outcome_of(error)
            return [failed if outcome is DONE else outcome for outcome in outcomes]
    return outcomes


def _rule(creation: AclCreation) -> AccessRule:
    """Raises Refused."""
    rule = AccessRule(
        creation.resource_type,
        creation.resource_name,
        creation.resource_pattern_type,
        creation.principal,
        creation.host,
        creation.operation,
        creation.permission_type,
    )
    wrong = fault(rule)
    if wrong is None and rule.resource_type == ResourceType.CLUSTER and rule.resource_name != CLUSTER_NAME:
        wrong = f"the cluster is named {CLUSTER_NAME}"
    if wrong is not None:
        raise ItemRefused(ErrorCode.invalid_request, wrong)
    return rule


API = Api(30, 1, 3, handle)
