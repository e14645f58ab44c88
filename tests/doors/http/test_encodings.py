"""Compressed bodies and the OpenAPI document, where this server does more than the contract requires."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from typing import Any

import pytest
import zstandard

from mainstem.doors.http.transport.context import HttpLimits

from .conftest import JSON, Api, code

PACK: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "zstd": zstandard.ZstdCompressor().compress,
    "identity": bytes,
}


@pytest.mark.parametrize("encoding", PACK)
@pytest.mark.parametrize("count", [1, 3000])
async def test_a_compressed_body_works_like_a_plain_one(api: Api, encoding: str, count: int) -> None:
    body = json.dumps({"records": [{"data": {"n": n, "s": f"{n:080}"}} for n in range(count)]}).encode()
    headers = {**JSON, "content-encoding": encoding}
    answer = await api.client.post("/v0/topics/t", content=PACK[encoding](body), headers=headers)
    assert answer.json()["last_seq"] == count
    assert api.context.body_bytes == 0


async def test_a_gzip_body_of_several_members(api: Api) -> None:
    body = gzip.compress(b'{"records":') + gzip.compress(b'[{"data":1}]}')
    answer = await api.client.post("/v0/topics/t", content=body, headers={**JSON, "content-encoding": "gzip"})
    assert answer.status_code == 201


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
async def test_a_compressed_body_is_limited_by_its_decompressed_size(
    open_api: Callable[..., Any], encoding: str
) -> None:
    async with open_api(bounds=HttpLimits(body_bytes=10_000)) as api:
        headers = {**JSON, "content-encoding": encoding}
        for size, status in ((9_000, 400), (10_001, 413), (5_000_000, 413)):
            answer = await api.client.post(
                "/v0/topics/t", content=PACK[encoding](b" " * size), headers=headers
            )
            assert answer.status_code == status


@pytest.mark.parametrize(
    ("encoding", "body", "refusal"),
    [
        ("br", b"x", (415, "unsupported_media_type")),
        ("gzip", b"x", (400, "invalid_request")),
        ("gzip", gzip.compress(b"{}", mtime=0)[:-4], (400, "invalid_request")),
        ("zstd", b"x", (400, "invalid_request")),
    ],
)
async def test_a_body_that_cannot_be_decompressed(
    api: Api, encoding: str, body: bytes, refusal: tuple[int, str]
) -> None:
    answer = await api.client.post(
        "/v0/topics/t", content=body, headers={**JSON, "content-encoding": encoding}
    )
    assert code((answer.status_code, answer.json())) == refusal


@pytest.mark.parametrize(
    ("accepted", "encoding"),
    [
        ("gzip", "gzip"),
        ("zstd", "zstd"),
        ("gzip, zstd", "zstd"),
        ("zstd;q=0, gzip;q=0.5", "gzip"),
        ("br", None),
        ("identity", None),
        ("", None),
    ],
)
async def test_responses_are_compressed_as_the_client_accepts(
    api: Api, accepted: str, encoding: str | None
) -> None:
    for count in (20, 1000):
        await api.write("t", *["x" * 100] * count)
        async with api.client.stream(
            "POST", "/v0/topics/t/diff", json={"limit": 1000}, headers={"accept-encoding": accepted}
        ) as answer:
            raw = b"".join([part async for part in answer.aiter_raw()])
        assert answer.headers.get("content-encoding") == encoding
        assert int(answer.headers["content-length"]) == len(raw)
        plain = {
            "gzip": gzip.decompress,
            "zstd": lambda data: zstandard.ZstdDecompressor().decompress(data, 1 << 24),
            None: bytes,
        }[encoding](raw)
        assert json.loads(plain)["records"][0]["data"] == "x" * 100


async def test_a_small_response_is_never_compressed(api: Api) -> None:
    answer = await api.client.get("/v0/health", headers={"accept-encoding": "gzip"})
    assert "content-encoding" not in answer.headers


async def test_the_interface_describes_itself(open_api: Callable[..., Any]) -> None:
    from mainstem.doors.http.routes.table import TABLE

    async with open_api(api_keys="k") as api:
        document = (await api.client.get("/openapi.json")).json()
        assert document["openapi"] == "3.1.0"
        for endpoint in TABLE:
            route = endpoint.route
            assert route.method.lower() in document["paths"][route.path]
        written = document["paths"]["/v0/topics/{topic}"]["post"]
        assert written["requestBody"]["content"]["application/json"]["schema"]["$ref"].endswith("/WriteBody")
        names = [
            operation["operationId"] for path in document["paths"].values() for operation in path.values()
        ]
        assert len(set(names)) == len(names)
        text = json.dumps(document)
        for reference in {part.partition('"')[0] for part in text.split('"#/components/schemas/')[1:]}:
            assert reference in document["components"]["schemas"]
        page = await api.client.get("/docs")
        assert page.headers["content-type"].startswith("text/html")
        assert "/v0/topics/{topic}/diff" in page.text
        assert "http://" not in page.text.replace("http://test", "")
