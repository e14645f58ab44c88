"""DeleteAcls: remove access rules."""

from __future__ import annotations

from kio.schema.delete_acls.v3.request import DeleteAclsFilter, DeleteAclsRequest
from kio.schema.delete_acls.v3.response import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsResponse,
)
from kio.schema.errors import ErrorCode
from kio.static.primitive import i8

from mainstem.broker.access.service import AccessRule
from mainstem.doors.kafka.apis.bulk import DONE, ItemRefused, ItemResult, outcome_of
from mainstem.doors.kafka.security.authorizer import NO_AUTHORIZER, RuleFilter, plain_rule
from mainstem.doors.kafka.transport.api import Api, Call
from mainstem.doors.kafka.transport.throttle import NO_THROTTLE
from mainstem.errors import MainstemError


async def handle(call: Call, request: DeleteAclsRequest) -> DeleteAclsResponse:
    results = [await _delete(call, wanted) for wanted in request.filters]
    return DeleteAclsResponse(throttle_time=NO_THROTTLE, filter_results=tuple(results))


async def _delete(call: Call, asked: DeleteAclsFilter) -> DeleteAclsFilterResult:
    if not call.context.access.enforced:
        return _result(NO_AUTHORIZER, ())
    try:
        wanted = RuleFilter.read(asked)
        picked = {
            rule: shown
            for rule in call.context.broker.security.access_rules
            if (shown := plain_rule(call.view, rule)) is not None and wanted.picks(shown)
        }
        if not picked:
            return _result(DONE, ())
        deleted = await call.context.broker.security.delete_rules(tuple(picked))
        return _result(DONE, tuple(picked[rule] for rule in deleted))
    except (ItemRefused, MainstemError) as error:
        return _result(outcome_of(error), ())


def _result(outcome: ItemResult, rules: tuple[AccessRule, ...]) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(
        error_code=outcome.code,
        error_message=outcome.message,
        matching_acls=tuple(
            DeleteAclsMatchingAcl(
                error_code=ErrorCode.none,
                error_message=None,
                resource_type=i8(rule.resource_type),
                resource_name=rule.resource_name,
                pattern_type=i8(rule.pattern_type),
                principal=rule.principal,
                host=rule.host,
                operation=i8(rule.operation),
                permission_type=i8(rule.permission),
            )
            for rule in rules
        ),
    )


API = Api(31, 1, 3, handle)
