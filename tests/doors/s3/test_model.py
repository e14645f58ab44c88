"""A bucket against a dict: random puts, deletes, copies and listings."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

KEYS = st.sampled_from(["a", "a/", "a/b", "a/b/c", "b", "b/a", "b/a/a", "ä", "z z", "~"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS, st.binary(max_size=40)),
        st.tuples(st.just("delete"), KEYS),
        st.tuples(st.just("copy"), KEYS, KEYS),
    ),
    max_size=14,
)
_numbers = count()


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=STEPS, prefix=st.sampled_from(["", "a", "a/", "b/a", "x"]), page=st.integers(1, 4))
def test_a_bucket_is_a_sorted_dict(s3: Any, steps: list[Any], prefix: str, page: int) -> None:
    bucket = f"model-{next(_numbers)}"
    s3.create_bucket(Bucket=bucket)
    model: dict[str, bytes] = {}
    for step in steps:
        match step:
            case "put", key, body:
                s3.put_object(Bucket=bucket, Key=key, Body=body)
                model[key] = body
            case "delete", key:
                s3.delete_object(Bucket=bucket, Key=key)
                model.pop(key, None)
            case "copy", source, target if source in model and source != target:
                s3.copy_object(Bucket=bucket, Key=target, CopySource={"Bucket": bucket, "Key": source})
                model[target] = model[source]
    expected = sorted(key for key in model if key.startswith(prefix))
    assert _listed(s3, bucket, prefix, "", page) == (expected, [])
    folders = {
        prefix + key[len(prefix) :].partition("/")[0] + "/" for key in expected if "/" in key[len(prefix) :]
    }
    files = [key for key in expected if "/" not in key[len(prefix) :]]
    assert _listed(s3, bucket, prefix, "/", page) == (files, sorted(folders))
    for key, body in model.items():
        assert s3.get_object(Bucket=bucket, Key=key)["Body"].read() == body
    for key in model:
        s3.delete_object(Bucket=bucket, Key=key)
    s3.delete_bucket(Bucket=bucket)
    with pytest.raises(ClientError):
        s3.head_bucket(Bucket=bucket)


def _listed(s3: Any, bucket: str, prefix: str, delimiter: str, page: int) -> tuple[list[str], list[str]]:
    keys, prefixes = [], []
    pages = s3.get_paginator("list_objects_v2").paginate(
        Bucket=bucket, Prefix=prefix, Delimiter=delimiter, PaginationConfig={"PageSize": page}
    )
    for found in pages:
        keys += [one["Key"] for one in found.get("Contents", [])]
        prefixes += [one["Prefix"] for one in found.get("CommonPrefixes", [])]
    return keys, prefixes
