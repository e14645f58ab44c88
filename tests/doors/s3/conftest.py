"""One server for the tests of the S3 door, and boto3 as its client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from mainstem.testing.server import ServerProcess

_numbers = count()


def client(server: ServerProcess, id: str = "any", secret: str = "any", token: str | None = None) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=f"http://{server.address('s3')}",
        region_name="us-east-1",
        aws_access_key_id=id,
        aws_secret_access_key=secret,
        aws_session_token=token,
        config=Config(
            signature_version="s3v4", s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}
        ),
    )


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("s3") / "data", "--text", "off", "--kafka", "off") as process:
        yield process


@pytest.fixture(scope="module")
def s3(server: ServerProcess) -> Any:
    return client(server)


@pytest.fixture
def bucket(s3: Any) -> str:
    name = f"bucket-{next(_numbers)}"
    s3.create_bucket(Bucket=name)
    return name


def expect(expected: str, *calls: Callable[[], object]) -> None:
    """Each of the calls fails with this code."""
    for call in calls:
        with pytest.raises(ClientError) as refused:
            call()
        assert code(refused) == expected


def code(error: pytest.ExceptionInfo[ClientError]) -> str:
    return str(error.value.response["Error"]["Code"])
