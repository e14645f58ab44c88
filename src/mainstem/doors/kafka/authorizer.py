"""Access rules: there is no authorizer, and requests about them are answered as Kafka does without one."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from mainstem.doors.kafka.bulk import Outcome

NO_AUTHORIZER = Outcome(ErrorCode.security_disabled, "there is no authorizer: every client may do everything")
