"""ceph/s3-tests, a suite of the S3 API through boto3: the operations that the S3 door offers.

No package has its tests: they need a checkout of the project. The server has keys, so requests without a signature
are refused, as the suite expects of private buckets.

    OUTSIDE_PYTEST='s3tests/functional/test_s3.py -k multipart' python -m tools.outside s3-tests     # these tests alone
"""

from __future__ import annotations

import json
import os
import shlex
import tempfile
import urllib.request
from pathlib import Path

from mainstem.testing.server import ServerProcess
from tools.outside.suite import Suite, Tally, call, checkout, of_junit, python_with

_PACKAGES = (
    "boto3",
    "munch",
    "isodate",
    "requests",
    "pytz",
    "httplib2",
    "lxml",
    "PyYAML",
    "pytest",
    "pytest-timeout",
)

# Markers of tests of what the door answers with NotImplemented, as docs/s3.md lists it.
_NOT_OFFERED = (
    *("abac_test", "appendobject", "auth_aws2", "bucket_encryption", "bucket_logging", "bucket_policy"),
    *("cloud_restore", "cloud_transition", "encryption", "iam_account", "iam_cross_account", "iam_role"),
    *("iam_tenant", "iam_user", "lifecycle", "lifecycle_expiration", "lifecycle_transition", "object_lock"),
    *(
        "object_ownership",
        "s3select",
        "s3website",
        "sns",
        "sse_s3",
        "storage_class",
        "tagging",
        "test_of_sts",
    ),
    *("webidentity_test", "fails_on_aws"),
)
# The same, of tests that have no such marker.
_NOT_OFFERED_NAMES = ("object_lock", "post_object", "cors", "block_public", "public_block")
_CHOSEN = (
    "s3tests/functional/test_s3.py s3tests/functional/test_headers.py "
    f"-k 'not ({' or '.join(_NOT_OFFERED_NAMES)})'"
)
_SECTIONS = ("s3 main", "s3 alt", "s3 tenant", "iam", "iam root", "iam alt root")


def _run(folder: Path) -> Tally:
    source = checkout("ceph/s3-tests", "OUTSIDE_S3_TESTS")
    python = python_with(folder, *_PACKAGES)
    report = folder / "report.xml"
    report.unlink(missing_ok=True)
    keys = {"MAINSTEM_API_KEYS": ",".join(f"key-{number}" for number in range(len(_SECTIONS)))}
    with tempfile.TemporaryDirectory(prefix="s3-tests-") as scratch:
        options = ("--text", "off", "--kafka", "off", "--pulsar", "off")
        with ServerProcess(Path(scratch) / "data", *options, env=keys) as server:
            settings = Path(scratch) / "s3tests.conf"
            settings.write_text(_settings(server))
            output = call(
                [
                    *(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout=60"),
                    *("-m", f"not ({' or '.join(_NOT_OFFERED)})", f"--junitxml={report}"),
                    *("-o", "junit_family=xunit2", *shlex.split(os.environ.get("OUTSIDE_PYTEST") or _CHOSEN)),
                ],
                source,
                check=False,
                log=folder / "output.log",
                environment={"S3TEST_CONF": str(settings), "PYTHONDONTWRITEBYTECODE": "1"},
            )
            server.terminate()
    return (of_junit(report) if report.exists() else Tally()).check_ran(output)


def _settings(server: ServerProcess) -> str:
    host, port = str(server.address("s3")).rsplit(":", 1)
    lines = [
        *("[DEFAULT]", f"host = {host}", f"port = {port}", "is_secure = False", "ssl_verify = False"),
        *("[fixtures]", "bucket prefix = s3-tests-{random}-"),
    ]
    for number, section in enumerate(_SECTIONS):
        key, secret = credentials(server, f"key-{number}")
        user = section.replace(" ", "-")
        lines += [f"[{section}]", f"access_key = {key}", f"secret_key = {secret}", f"user_id = {user}"]
        lines += [
            f"display_name = {user}",
            f"email = {user}@example.com",
            "tenant = none",
            "api_name =",
        ]
    return "\n".join(lines) + "\n"


def credentials(server: ServerProcess, api_key: str) -> tuple[str, str]:
    request = urllib.request.Request(
        f"http://{server.address('http')}/v0/s3/credentials",
        data=b'{"ttl_ms": 0}',
        headers={"authorization": f"Bearer {api_key}", "content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        found = json.load(answer)
    return found["access_key_id"], found["secret_access_key"]


_ACL = "the door has no ACLs and no policies: access rules decide"
_OWNERS = (
    "buckets and objects have no owners: access rules decide, and each key of this run may do everything"
)
_PART_CHECKSUMS = "the door does not keep the checksums of single parts"

_SUITE = "as the suite says itself, it cannot remove the header from what boto3 sends"

_EXPECTED = {
    "*::test_bucket_list*_objects_anonymous": _ACL,
    "*::test_bucket_concurrent_set_canned_acl": _ACL,
    "*::test_bucket_acl_*": _ACL,
    "*::test_put_bucket_acl_*": _ACL,
    "*::test_object_acl_*": _ACL,
    "*::test_access_bucket_*": _ACL,
    "*::test_ignore_public_acls": _ACL,
    "*::test_get_*_bucket_policy_status": _ACL,
    "*::test_get_bucket_policy_status": _ACL,
    "*::test_bucket_policy_allow_notprincipal": _ACL,
    "*::test_head_object_404_with_policy_prefix": _ACL,
    "*::test_multipart_upload_on_a_bucket_with_policy": _ACL,
    "*::test_list_multipart_upload_owner": _ACL,
    "*::test_object_copy_canned_acl": _ACL,
    "*::test_object_anon_put_write_access": _ACL,
    "*::test_expected_bucket_owner": _ACL,
    "*::test_100_continue": _ACL,
    "*::test_object_raw_*": _ACL,
    "*::test_object_delete_key_bucket_gone": _ACL,
    "*::test_versioned_object_acl*": _OWNERS,
    "*::test_bucket_recreate_*_acl": _OWNERS,
    "*::test_bucket_create_exists_nonowner": _OWNERS,
    "*::test_object_copy_not_owned_*": _OWNERS,
    "*::test_multipart_use_cksum_helper_*": _PART_CHECKSUMS,
    "*::test_get_multipart_checksum_object_attributes": _PART_CHECKSUMS,
    "*::test_delete_marker_nonversioned": "as Amazon's, the header says nothing of objects without a delete marker",
    "*::test_list_buckets_paginated": "every server has the bucket `tables`",
    "*::test_object_set_get_unicode_metadata": "a header comes back with the bytes that were sent",
    "*::test_object_read_unreadable": "its key is valid UTF-8: there is no such object",
    "*::test_object_create_bad_contentlength_none": _SUITE,
    "*::test_*_create_bad_authorization_empty": _SUITE,
    "*::test_*_create_bad_authorization_none": _SUITE,
    "*::test_bucket_put_bad_canned_acl": _ACL,
    "*::test_get_object_torrent": "torrents are not offered",
}
SUITES = (Suite("s3-tests", "8f0ae7b4", _run, _EXPECTED),)
