"""What survives kill -9: whole objects, and nothing of those that were not acknowledged."""

from __future__ import annotations

import os
from pathlib import Path

from mainstem.testing.server import ServerProcess

from .conftest import client


def test_objects_and_uploads_outlive_a_killed_server(tmp_path: Path) -> None:
    flags = ("--text", "off", "--kafka", "off")
    first, last = os.urandom(5 << 20), b"last"
    with ServerProcess(tmp_path / "data", *flags) as server:
        s3 = client(server)
        s3.create_bucket(Bucket="kept")
        s3.put_bucket_versioning(Bucket="kept", VersioningConfiguration={"Status": "Enabled"})
        versions = [s3.put_object(Bucket="kept", Key="k", Body=bytes([n]))["VersionId"] for n in range(3)]
        id = s3.create_multipart_upload(Bucket="kept", Key="big")["UploadId"]
        one = s3.upload_part(Bucket="kept", Key="big", UploadId=id, PartNumber=1, Body=first)["ETag"]
        server.kill()
    with ServerProcess(tmp_path / "data", *flags) as server:
        s3 = client(server)
        found = [s3.get_object(Bucket="kept", Key="k", VersionId=id)["Body"].read() for id in versions]
        assert found == [bytes([n]) for n in range(3)]
        two = s3.upload_part(Bucket="kept", Key="big", UploadId=id, PartNumber=2, Body=last)["ETag"]
        parts = [{"PartNumber": 1, "ETag": one}, {"PartNumber": 2, "ETag": two}]
        s3.complete_multipart_upload(Bucket="kept", Key="big", UploadId=id, MultipartUpload={"Parts": parts})
        assert s3.get_object(Bucket="kept", Key="big")["Body"].read() == first + last
