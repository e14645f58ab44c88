"""The functional tests of minio-go, MinIO's S3 client: its Go module contains them. The server has keys."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

from mainstem.testing.server import ServerProcess
from tools.outside.s3_tests import credentials
from tools.outside.suite import Suite, Tally, call, program

MODULE = "github.com/minio/minio-go/v7"
VERSION = "v7.4.1"


def _run(folder: Path) -> Tally:
    go = program("go")
    fetched = json.loads(call([go, "mod", "download", "-json", f"{MODULE}@{VERSION}"], folder))
    source = folder / "source"
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(fetched["Dir"], source)
    call(["chmod", "-R", "u+w", source], folder)
    call([go, "build", "-mod=mod", "-o", "tests", "functional_tests.go"], source)
    keys = {"MAINSTEM_API_KEYS": "key-0"}
    with tempfile.TemporaryDirectory(prefix="s3-go-") as scratch:
        options = ("--text", "off", "--kafka", "off", "--pulsar", "off")
        with ServerProcess(Path(scratch) / "data", *options, env=keys) as server:
            id, secret = credentials(server, "key-0")
            environment = {
                "SERVER_ENDPOINT": str(server.address("s3")),
                "ACCESS_KEY": id,
                "SECRET_KEY": secret,
                "ENABLE_HTTPS": "0",
                "ENABLE_KMS": "0",
                "MINT_MODE": "full",
                "RUN_ON_FAIL": "1",
                "MINT_DATA_DIR": "",
            }
            output = call(
                [source / "tests"],
                Path(scratch),
                check=False,
                environment=environment,
                log=folder / "output.log",
            )
            server.terminate()
    return _of_mint(output).check_ran(output)


def _of_mint(output: str) -> Tally:
    """The results in lines of JSON, as MinIO's mint reads them."""
    tally = Tally()
    for line in output.splitlines():
        if not line.startswith("{") or '"status"' not in line:
            continue
        result = json.loads(line)
        name = str(result.get("name", ""))
        name = name.removeprefix("minio-go: ").partition(".func")[0]
        if result["status"] == "PASS":
            tally.passed.append(name)
        elif result["status"] == "FAIL":
            tally.failed[name] = line[:1500]
        else:
            tally.skipped.append(name)
    return tally


_V2 = "requests of signature version 2 are refused, apart from presigned URLs"
_POST = "POST forms are not offered"
_PART_CHECKSUMS = "the door does not keep the checksums of single parts"
_EXPECTED = {
    "test*V2": _V2,
    "testCopyObjectWithChecksums": _V2,
    "testReplaceObjectWithChecksums": _V2,
    **dict.fromkeys(
        (
            "testComposeObjectErrorCasesWrapper",
            "testComposeMultipleSources",
            "testUserMetadataCopyingWrapper",
        ),
        f"{_V2}; the same steps of version 4 pass",
    ),
    "testPresignedPostPolicy*": _POST,
    "testGetObjectAttributes": _PART_CHECKSUMS,
    "testTrailingChecksums": _PART_CHECKSUMS,
    "testMakeBucketError": "as Amazon's in us-east-1, an owner may create a bucket again",
    "testGetObjectACLContext": "the door has no ACLs: access rules decide",
    "testListUnsorted": "listings with metadata are an extension of MinIO",
}
SUITES = (Suite("minio-go", VERSION, _run, _EXPECTED),)
