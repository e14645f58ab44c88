"""Tables for readers that reach the server alone, not its directory."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import httpx
import pyarrow as pa
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import RESTError
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from mainstem.tables.avro_locations import with_locations

from .tabling import Tabling, tabling

SCHEMA = Schema(NestedField(1, "x", LongType(), required=False))

READER = """
import sys
from pyiceberg.catalog import load_catalog
table = load_catalog("m", type="rest", uri=sys.argv[1]).load_table("default.seen")
paths = {task.file.file_path.partition("://")[0] for task in table.scan().plan_files()}
assert paths == {"s3"}, paths
assert table.location().startswith("s3://tables/"), table.location()
print(sorted(table.scan().to_arrow().column("n").to_pylist()) == list(range(200)), len(table.metadata.snapshots))
"""


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tabling]:
    with tabling(tmp_path_factory.mktemp("remote") / "data", "--text", "off", "--kafka", "off") as started:
        started.topic("seen")
        started.enable("seen", schema=[{"name": "n", "type": "long"}])
        for start in (0, 100):
            started.write("seen", *({"n": n} for n in range(start, start + 100)))
            started.work()
            started.publish()
        yield started


def test_a_process_without_the_directory_reads_a_topics_table(lake: Tabling, tmp_path: Path) -> None:
    environment = {**os.environ, "HOME": str(tmp_path), "AWS_EC2_METADATA_DISABLED": "true"}
    arguments = [sys.executable, "-c", READER, f"{lake.url}/iceberg"]
    if os.geteuid() == 0 and shutil.which("unshare"):
        # In a mount namespace in which the data directory is empty.
        inside = f'mount -t tmpfs none "{lake.data_dir}" && exec "$@"'
        arguments = ["unshare", "-m", "sh", "-c", inside, "sh", *arguments]
    outcome = subprocess.run(
        arguments, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert (outcome.stdout.split(), outcome.stderr) == (["True", "2"], "")


def test_only_clients_that_ask_for_it_get_s3_locations(lake: Tabling) -> None:
    path = f"{lake.url}/iceberg/v1/namespaces/default/tables/seen"
    plain = httpx.get(path).json()
    assert plain["metadata-location"].startswith("file:")
    assert plain["config"] == {}
    vended = httpx.get(path, headers={"X-Iceberg-Access-Delegation": "vended-credentials"}).json()
    assert vended["metadata-location"].startswith("s3://tables/tables/")
    assert "file:" not in str(vended)
    assert {
        "s3.endpoint",
        "s3.access-key-id",
        "s3.secret-access-key",
        "s3.session-token",
        "s3.region",
    } <= set(vended["config"])
    # The files of a topic are not below the location of its table.
    credentials = vended["storage-credentials"]
    folder = vended["metadata"]["location"]
    assert [folder.startswith(each["prefix"].rstrip("/")) for each in credentials] == [True, False]
    assert credentials[1]["prefix"].startswith("s3://tables/parts/")
    assert all(each["config"] == vended["config"] for each in credentials)
    answer = httpx.get(path, headers={"X-Iceberg-Access-Delegation": "remote-signing"}).json()
    assert "storage-credentials" not in answer
    signed = answer["config"]
    assert "s3.secret-access-key" not in signed
    assert signed["s3.remote-signing-enabled"] == "true"


def test_converted_files_have_the_lengths_that_others_give_of_them(lake: Tabling) -> None:
    table = lake.remote_catalog().load_table("default.seen")
    for snapshot in table.metadata.snapshots:
        for manifest in snapshot.manifests(table.io):
            assert manifest.manifest_path.startswith("s3://tables/")
            assert len(table.io.new_input(manifest.manifest_path)) == manifest.manifest_length
            entries = manifest.fetch_manifest_entry(table.io, discard_deleted=False)
            for entry in entries:
                assert (
                    len(table.io.new_input(entry.data_file.file_path)) == entry.data_file.file_size_in_bytes
                )


def test_a_conversion_and_back_changes_nothing_but_the_packing(lake: Tabling) -> None:
    table = lake.catalog().load_table("default.seen")
    snapshot = table.current_snapshot()
    assert snapshot is not None
    local = Path(snapshot.manifest_list.removeprefix("file://")).read_bytes()
    lengths = {one.manifest_path: one.manifest_length for one in snapshot.manifests(table.io)}
    same = with_locations(local, lambda location: location, lengths.__getitem__)
    assert with_locations(same, lambda location: location, lengths.__getitem__) == same
    there = with_locations(local, lambda location: "x" + location, lambda _: 7)
    back = with_locations(there, lambda location: location[1:], lambda location: lengths[location[1:]])
    assert back == same


def test_files_of_topics_tables_are_read_only(lake: Tabling) -> None:
    url = f"http://{lake.server.address('s3')}"
    listed = httpx.get(f"{url}/tables?list-type=2&prefix=parts/").text
    key = listed.partition("<Key>")[2].partition("</Key>")[0]
    before = httpx.get(f"{url}/tables/{key}").content
    assert before[:4] == b"PAR1"
    assert httpx.put(f"{url}/tables/{key}", content=b"x").status_code == 403
    assert httpx.delete(f"{url}/tables/{key}").status_code == 403
    folder = lake.remote_catalog().load_table("default.seen").location().removeprefix("s3://")
    assert httpx.put(f"{url}/{folder}/data/x", content=b"x").status_code == 403
    assert httpx.put(f"{url}/tables/tables/x", content=b"x").status_code == 403
    assert httpx.put(f"{url}/tables/anything", content=b"x").status_code == 403
    assert httpx.get(f"{url}/tables/{key}").content == before


def test_a_table_at_the_s3_door_is_written_through_it(lake: Tabling) -> None:
    catalog = lake.remote_catalog()
    table = catalog.create_table("default.mine", SCHEMA, location="s3://tables/tables/default/mine")
    table.append(pa.table({"x": [1, 2]}))
    table.append(pa.table({"x": [3]}))
    found = lake.remote_catalog().load_table("default.mine").scan().to_arrow().column("x").to_pylist()
    assert sorted(found) == [1, 2, 3]


def test_a_table_of_a_client_that_takes_credentials_is_for_every_machine(lake: Tabling) -> None:
    catalog = lake.remote_catalog()
    table = catalog.create_table("default.everywhere", SCHEMA)
    assert table.location().startswith("s3://tables/tables/default/everywhere-")
    table.append(pa.table({"x": [1]}))
    seen = catalog.load_namespace_properties("default")
    assert seen["location"] == "s3://tables/tables/default"
    assert lake.catalog().load_namespace_properties("default")["location"].startswith("file:")
    catalog.create_namespace("placed", {"location": f"file://{lake.data_dir}/objects/tables/placed"})
    assert catalog.create_table("placed.here", SCHEMA).location().startswith("file:")
    assert lake.catalog().create_table("default.only_here", SCHEMA).location().startswith("file:")


@pytest.mark.parametrize("keys", ["", "boss,reader:read"])
def test_files_of_a_table_can_be_written_before_it_is_created(tmp_path: Path, keys: str) -> None:
    """As engines do for CREATE TABLE AS SELECT: the catalog vends credentials for the staged table."""
    with pytest.MonkeyPatch.context() as patch:
        if keys:
            patch.setenv("MAINSTEM_API_KEYS", keys)
        started = Tabling(tmp_path / "data", "--text", "off", "--kafka", "off")
    try:
        asking = {"X-Iceberg-Access-Delegation": "vended-credentials", "authorization": "Bearer boss"}
        namespace = f"{started.url}/iceberg/v1/namespaces/default/tables"
        body = {"name": "own", "schema": SCHEMA.model_dump(by_alias=True), "stage-create": True}
        staged = [started.http.post(namespace, json=body, headers=asking).json() for _ in range(2)]
        assert "metadata-location" not in staged[0]
        folders = [each["metadata"]["location"].removeprefix("s3://tables/") for each in staged]
        assert len(set(folders)) == 2
        s3 = _door(staged[0]["config"])
        s3.put_object(Bucket="tables", Key=f"{folders[0]}/data/1.parquet", Body=b"rows")
        found = s3.get_object(Bucket="tables", Key=f"{folders[0]}/data/1.parquet")
        assert found["Body"].read() == b"rows"
        outside = ["tables/own", "tables/default/own-0123456789abcdef.topic/metadata/1", "parts/00/1"]
        if keys:
            outside += ["tables/default/own/1", f"{folders[1]}/1"]  # of other credentials
            as_reader = {**asking, "authorization": "Bearer reader"}
            reader = started.http.post(namespace, json=body, headers=as_reader)
            assert reader.status_code == 403
        for key in outside:
            with pytest.raises(ClientError, match="AccessDenied"):
                s3.put_object(Bucket="tables", Key=key, Body=b"x")
        s3.close()
    finally:
        started.close()


def test_a_location_at_the_s3_door_cannot_take_another_tables_folder(tmp_path: Path) -> None:
    keys = {"MAINSTEM_API_KEYS": "boss,maker:read+admin:mine"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in keys.items():
            patch.setenv(name, value)
        started = Tabling(tmp_path / "data", "--text", "off", "--kafka", "off")
    try:
        uri = f"{started.url}/iceberg"
        boss = load_catalog("m", type="rest", uri=uri, token="boss")
        theirs = boss.create_table("default.theirs", SCHEMA).location()
        key = theirs.partition("/objects/")[2]
        maker = load_catalog("m", type="rest", uri=uri, token="maker")
        with pytest.raises(RESTError):
            maker.create_table("default.mine", SCHEMA, location=f"s3://tables/{key}")
        boss.create_namespace("later")
        for around in ("tables/later", "tables/later/"):  # later tables would be in it
            for staged in (False, True):
                body = {"name": "mine", "location": f"s3://tables/{around}", "stage-create": staged}
                refused = started.http.post(
                    "/iceberg/v1/namespaces/default/tables",
                    json={**body, "schema": SCHEMA.model_dump(by_alias=True)},
                    headers={
                        "authorization": "Bearer maker",
                        "X-Iceberg-Access-Delegation": "vended-credentials",
                    },
                )
                assert (refused.status_code, "namespace" in refused.text) == (400, True), refused.text
        mine = maker.create_table("default.mine", SCHEMA, location="s3://tables/tables/default/mine-own")
        mine.append(pa.table({"x": [1]}))
        _check_scope(started, mine.io.properties, key)
    finally:
        started.close()


def test_a_table_around_a_later_namespace_does_not_own_its_files(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MAINSTEM_API_KEYS", "boss,maker:read+admin:mine")
        started = Tabling(tmp_path / "data", "--text", "off", "--kafka", "off")
    try:
        uri = f"{started.url}/iceberg"
        maker = load_catalog("m", type="rest", uri=uri, token="maker")
        mine = maker.create_table("default.mine", SCHEMA, location="s3://tables/tables/later")
        s3 = _door(dict(mine.io.properties))
        s3.put_object(Bucket="tables", Key="tables/later/data/x", Body=b"x")
        boss = load_catalog("m", type="rest", uri=uri, token="boss")
        boss.create_namespace("later")
        theirs = boss.create_table("later.theirs", SCHEMA).location().removeprefix("s3://tables/")
        assert theirs.startswith("tables/later/")
        s3.put_object(Bucket="tables", Key="tables/later/data/y", Body=b"y")
        with pytest.raises(ClientError, match="AccessDenied"):
            s3.put_object(Bucket="tables", Key=f"{theirs}/data/x", Body=b"x")
        with pytest.raises(ClientError, match="AccessDenied"):
            s3.get_object(Bucket="tables", Key=s3_metadata(boss, "later.theirs"))
    finally:
        started.close()


def s3_metadata(catalog: Any, name: str) -> str:
    location: str = catalog.load_table(name).metadata_location
    return location.removeprefix("s3://tables/")


def _check_scope(lake: Tabling, vended: dict[str, Any], key: str) -> None:
    """Credentials for one table do not reach another."""
    s3 = _door(vended)
    folder = "tables/default/mine-own/"
    assert s3.list_objects_v2(Bucket="tables", Prefix=folder)["KeyCount"] > 0
    s3.put_object(Bucket="tables", Key=f"{folder}data/x", Body=b"x")
    refused: tuple[Callable[[], object], ...] = (
        lambda: s3.put_object(Bucket="tables", Key=f"{key}/data/x", Body=b"x"),
        lambda: s3.get_object(Bucket="tables", Key=f"{key}/metadata/x"),
        lambda: s3.create_bucket(Bucket="mine-bucket"),
    )
    for call in refused:
        with pytest.raises(ClientError):
            call()


def _door(vended: dict[str, Any]) -> Any:
    """A client of the S3 door with vended credentials."""
    return boto3.client(
        "s3",
        endpoint_url=vended["s3.endpoint"],
        region_name=vended["s3.region"],
        aws_access_key_id=vended["s3.access-key-id"],
        aws_secret_access_key=vended["s3.secret-access-key"],
        aws_session_token=vended["s3.session-token"],
        config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}),
    )
