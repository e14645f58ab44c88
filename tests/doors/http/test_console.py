"""The console's files: complete, with correct caching, and nothing else beside them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from .conftest import Api, code


async def assets(api: Api) -> list[str]:
    page = await api.client.get("/")
    return re.findall(r'"(/console/assets/[^"]+)"', page.text)


async def test_the_page_and_its_files_are_there_and_name_no_other_host(api: Api) -> None:
    page = await api.client.get("/")
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "<title>Mainstem</title>" in page.text
    found = await assets(api)
    assert {name.rpartition(".")[2] for name in found} == {"js", "css", "svg"}
    total = len(page.content)
    for name in found:
        file = await api.client.get(name)
        assert file.status_code == 200
        total += len(file.content)
        hosts = set(re.findall(r"https?://([^/\"'`\s]+)", file.text)) - {"www.w3.org"}  # names of namespaces
        assert not hosts
        assert "sourceMappingURL" not in file.text
    assert total < 400_000


async def test_files_are_cached_forever_and_the_page_is_revalidated(api: Api) -> None:
    page = await api.client.get("/")
    assert page.headers["cache-control"] == "no-cache"
    same = await api.client.get("/", headers={"if-none-match": page.headers["etag"]})
    assert (same.status_code, same.content) == (304, b"")
    other = await api.client.get("/", headers={"if-none-match": '"else"'})
    assert other.status_code == 200
    file = await api.client.get((await assets(api))[0])
    assert "immutable" in file.headers["cache-control"]


async def test_a_policy_keeps_everything_else_out_of_the_page(api: Api) -> None:
    for name in ("/", *await assets(api)):
        headers = (await api.client.get(name)).headers
        assert headers["content-security-policy"].startswith("default-src 'self'")
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "name",
    [
        "..%2findex.html",
        "%2e%2e%2f__init__.py",
        "..%5cindex.html",
        "%2fetc%2fpasswd",
        "nothing.js",
        "%00",
        ".",
    ],
)
async def test_no_path_escapes_the_files(api: Api, name: str) -> None:
    assert code(await api.ask("GET", f"/console/assets/{name}")) == (404, "not_found")


async def test_a_browser_without_a_key_gets_the_page_even_where_probes_need_one(
    open_api: Callable[..., Any],
) -> None:
    async with open_api(api_keys="k", probe_auth=True) as api:
        assert (await api.client.get("/")).status_code == 200
        assert (await api.client.get((await assets(api))[0])).status_code == 200
        assert code(await api.ask("GET", "/v0/key")) == (401, "unauthorized")
        assert code(await api.ask("GET", "/v0/health")) == (401, "unauthorized")
