"""Google's and Azure's stores, by doubles of their protocols: credentials, failures, what a lost answer meant."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import sys
from pathlib import Path

import pytest

from mainstem.errors import NotFound, StoreRefused, StoreUnreachable
from mainstem.ports.objectstore.bucket import Retries, RetryBudget
from mainstem.ports.objectstore.open import open_store
from mainstem.ports.objectstore.port import ObjectStore
from tests.support.azure import ACCOUNT, KEY, AzureDouble
from tests.support.gcs import GcsDouble
from tests.support.wire_store import PAGE_OBJECTS, WireStore

Double = GcsDouble | AzureDouble


@pytest.fixture(params=["gcs_double", "azure_double"])
def double(request: pytest.FixtureRequest) -> Double:
    found: Double = request.getfixturevalue(request.param)
    return found


def opened(url: str, attempts: int = 3) -> ObjectStore:
    return open_store(url, retries=Retries(RetryBudget(attempts=attempts, backoff_s=0.001)))


async def keys(store: ObjectStore, prefix: str = "") -> list[str]:
    return [found.key async for found in store.list(prefix)]


async def test_a_listing_of_several_pages_is_whole(double: Double) -> None:
    store = opened(double.url("deep/er"))
    names = [f"f/{number:02}" for number in range(2 * PAGE_OBJECTS + 1)]
    await asyncio.gather(*(store.put(name, b"x") for name in [*names, "g"]))
    assert await keys(store, "f/") == names
    assert await keys(store, "f/1") == [name for name in names if name.startswith("f/1")]
    assert sum(one.method == "GET" for one in double.asked) == 6


@pytest.mark.parametrize(
    ("status", "code"), [(429, "TooManyRequests"), (503, "ServerBusy"), (500, "InternalError")]
)
async def test_a_store_that_is_busy_is_asked_again(double: Double, status: int, code: str) -> None:
    store = opened(double.url())
    double.fail(status, code, times=2)
    assert await store.put("key", b"content")
    double.fail(status, code, times=2)
    assert await store.get("key") == b"content"
    double.fail(status, code, times=2)
    assert await keys(store) == ["key"]
    double.fail(status, code, times=2)
    await store.delete("key")
    assert double.objects == {}
    double.fail(status, code, times=3)
    with pytest.raises(StoreUnreachable, match=str(status)):
        await store.get("key")


async def test_a_put_that_was_stored_but_answered_with_an_error_was_ours(double: Double) -> None:
    store = opened(double.url())
    double.fail(503, "ServerBusy", after=True)
    assert await store.put("key", b"ours", if_absent=True)
    double.fail(503, "ServerBusy")
    assert not await store.put("key", b"not ours", if_absent=True)
    assert await store.get("key") == b"ours"


async def test_refusals_are_told_at_once(double: Double) -> None:
    store = opened(double.url())
    double.fail(403, "AuthorizationFailure", times=4)
    for call in (store.put("key", b"x"), store.get("key"), store.delete("key")):
        with pytest.raises(StoreRefused, match=r"403 AuthorizationFailure.*credentials"):
            await call
    with pytest.raises(StoreRefused, match="credentials"):
        await keys(store)
    assert len(double.asked) == 4


async def test_a_bucket_that_is_not_there_is_named(double: Double) -> None:
    name = "no-such-box"
    store = opened(double.url().replace(f"://{WireStore.bucket}/", f"://{name}/"))
    for call in (
        store.put("key", b"x"),
        store.get("key"),
        store.get_ranges("key", [(0, 1)]),
        store.delete("key"),
    ):
        with pytest.raises(StoreRefused, match=rf"{name}.*the bucket does not exist"):
            await call
    with pytest.raises(StoreRefused, match="the bucket does not exist"):
        await keys(store)


async def test_azure_credentials_come_from_the_environment(
    azure_double: AzureDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", KEY)
    store = opened(f"az://{azure_double.bucket}/here?endpoint={azure_double.endpoint}/{ACCOUNT}")
    assert await store.put("key", b"content")
    assert list(azure_double.objects) == ["here/key"]


async def test_a_wrong_key_of_azure_is_refused_and_not_shown(azure_double: AzureDouble) -> None:
    wrong = base64.b64encode(b"another key").decode()
    store = opened(azure_double.url(account_key=wrong))
    with pytest.raises(StoreRefused, match=r"AuthenticationFailed.*credentials") as raised:
        await store.put("key", b"x")
    assert wrong not in repr(raised.value)


async def test_a_part_of_a_batch_that_azure_refuses_is_no_delete(azure_double: AzureDouble) -> None:
    store = opened(azure_double.url())
    await store.put("key", b"x")
    azure_double.part_failures += ["403 AuthorizationPermissionMismatch"]
    with pytest.raises(StoreRefused, match=r"403.*credentials"):
        await store.delete("key")
    azure_double.part_failures += ["503 Server is busy", "500 Internal error"]
    await store.delete("key")
    assert azure_double.objects == {}


async def test_a_key_file_of_google_signs_requests(
    gcs_double: GcsDouble, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GOOGLE_BEARER_TOKEN")
    command = ["openssl", "genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"]
    made = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=True)
    account = {
        "type": "service_account",
        "private_key": made.stdout,
        "private_key_id": "1",
        "client_email": "mainstem@example.com",
    }
    file = tmp_path / "account.json"
    file.write_text(json.dumps(account))
    for store in (
        opened(gcs_double.url(service_account_path=str(file))),
        opened(gcs_double.url(application_credentials=str(file))),
    ):
        assert await store.put("key", b"content")
        token = gcs_double.asked[-1].headers["authorization"].removeprefix("Bearer ")
        claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
        assert claims["iss"] == "mainstem@example.com"
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT", str(file))
    assert await opened(gcs_double.url()).get("key") == b"content"


async def test_google_without_credentials_is_told_so(
    gcs_double: GcsDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GOOGLE_BEARER_TOKEN")
    monkeypatch.setenv("HOME", "/nowhere")
    double = gcs_double
    monkeypatch.setenv("METADATA_HOST", double.endpoint.removeprefix("http://"))
    with pytest.raises(StoreRefused, match="credentials"):
        await opened(double.url(), attempts=1).put("key", b"x")


async def test_what_is_gone_is_gone(double: Double) -> None:
    store = opened(double.url())
    await store.put("key", b"x")
    await store.delete("key")
    await store.delete("key")
    with pytest.raises(NotFound):
        await store.get("key")
    assert await store.put("key", b"y", if_absent=True)


def test_a_process_ends_only_when_threads_of_the_client_are_out_of_python() -> None:
    code = """
import _thread, time
from mainstem.ports.objectstore.bucket import wait_at_exit

def bring_an_answer():
    entered.release()
    time.sleep(0.05)
    print("out", flush=True)

entered = _thread.allocate_lock()
entered.acquire()
wait_at_exit()
_thread.start_new_thread(bring_an_answer, ())
entered.acquire()
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "out\n"
