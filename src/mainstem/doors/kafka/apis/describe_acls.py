"""DescribeAcls: the access rules."""

from __future__ import annotations

from itertools import groupby

from kio.schema.describe_acls.v3.request import DescribeAclsRequest
from kio.schema.describe_acls.v3.response import AclDescription, DescribeAclsResource, DescribeAclsResponse
from kio.static.primitive import i8

from mainstem.broker.access.service import AccessRule
from mainstem.doors.kafka.apis.bulk import DONE, ItemRefused, ItemResult, outcome_of
from mainstem.doors.kafka.security.authorizer import NO_AUTHORIZER, RuleFilter, plain_rule
from mainstem.doors.kafka.transport.api import Api, Call
from mainstem.doors.kafka.transport.throttle import NO_THROTTLE


async def handle(call: Call, request: DescribeAclsRequest) -> DescribeAclsResponse:
    if not call.context.access.enforced:
        return _answer(NO_AUTHORIZER, [])
    try:
        wanted = RuleFilter.read(request)
    except ItemRefused as error:
        return _answer(outcome_of(error), [])
    rules = (plain_rule(call.view, rule) for rule in call.context.broker.security.access_rules)
    return _answer(DONE, [rule for rule in rules if rule is not None and wanted.picks(rule)])


def _answer(outcome: ItemResult, rules: list[AccessRule]) -> DescribeAclsResponse:
    def resource(rule: AccessRule) -> tuple[int, str, int]:
        return rule.resource_type, rule.resource_name, rule.pattern_type

    resources = tuple(
        DescribeAclsResource(
            resource_type=i8(kind),
            resource_name=name,
            pattern_type=i8(pattern),
            acls=tuple(
                AclDescription(
                    principal=rule.principal,
                    host=rule.host,
                    operation=i8(rule.operation),
                    permission_type=i8(rule.permission),
                )
                for rule in same
            ),
        )
        for (kind, name, pattern), same in groupby(rules, resource)
    )
    return DescribeAclsResponse(
        throttle_time=NO_THROTTLE,
        error_code=outcome.code,
        error_message=outcome.message,
        resources=resources,
    )


API = Api(29, 1, 3, handle)
