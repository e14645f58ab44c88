"""DescribeClientQuotas: there are none."""

from __future__ import annotations

from kio.schema.describe_client_quotas.v1.request import DescribeClientQuotasRequest
from kio.schema.describe_client_quotas.v1.response import DescribeClientQuotasResponse
from kio.schema.errors import ErrorCode

from mainstem.doors.kafka.api import Api, Call
from mainstem.doors.kafka.throttle import NO_THROTTLE


async def handle(call: Call, request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(
        throttle_time=NO_THROTTLE, error_code=ErrorCode.none, error_message=None, entries=()
    )


API = Api(48, 0, 1, handle)
