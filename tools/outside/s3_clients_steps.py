"""A program that uses the AWS CLI and s3fs. Endpoint and credentials are in its environment."""

import json
import os
import random
import subprocess
import traceback
import urllib.request
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

KEYS = (
    "plain.txt",
    "a b+c&d=e.txt",
    "ünï☃/\U0001f40b.txt",
    "per%20cent%.txt",
    "dir/~'()*!$,;:@.txt",
    "end/.hidden",
)
LARGE = random.Random(17).randbytes(20 << 20)


def expect(found: object, wanted: object) -> None:
    if found != wanted:
        raise AssertionError(f"{str(found)[:1000]}, not {str(wanted)[:1000]}")


def aws(*arguments: object, data: bytes | None = None) -> bytes:
    done = subprocess.run(["aws", *map(str, arguments)], input=data, capture_output=True, check=False)
    if done.returncode:
        raise RuntimeError(f"aws {arguments} ended with {done.returncode}: {done.stderr.decode()[-1500:]}")
    return done.stdout


def api(*arguments: object) -> Any:
    output = aws("s3api", *arguments, "--output", "json")
    return json.loads(output) if output.strip() else {}


def aws_cli() -> Iterable[Callable[[], None]]:
    def make_bucket() -> None:
        aws("s3", "mb", "s3://cli")
        expect(b"cli" in aws("s3", "ls"), True)

    def copy_each_way() -> None:
        Path("one.txt").write_bytes(b"one")
        for key in KEYS:
            aws("s3", "cp", "one.txt", f"s3://cli/{key}")
            expect(aws("s3", "cp", f"s3://cli/{key}", "-"), b"one")
        listed = [
            line.split(maxsplit=3)[3]
            for line in aws("s3", "ls", "--recursive", "s3://cli").decode().splitlines()
        ]
        expect(sorted(listed), sorted(KEYS))

    def copy_large() -> None:
        Path("large").write_bytes(LARGE)
        aws("s3", "cp", "large", "s3://cli/large")
        aws("s3", "cp", "s3://cli/large", "back")
        expect(Path("back").read_bytes() == LARGE, True)
        expect("-" in api("head-object", "--bucket", "cli", "--key", "large")["ETag"], True)

    def copy_from_a_stream() -> None:
        aws("s3", "cp", "-", "s3://cli/stream", data=LARGE)
        expect(aws("s3", "cp", "s3://cli/stream", "-") == LARGE, True)

    def copy_and_move_inside() -> None:
        aws(
            "s3",
            "cp",
            "s3://cli/large",
            "s3://cli/large-2",
            "--metadata",
            "a=b",
            "--metadata-directive",
            "REPLACE",
        )
        aws("s3", "mv", "s3://cli/large-2", "s3://cli/large-3")
        expect(api("head-object", "--bucket", "cli", "--key", "large-3")["ContentLength"], len(LARGE))

    def synchronise() -> None:
        folder = Path("folder")
        for number in range(30):
            path = folder / f"d{number % 3}" / f"{number}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(str(number))
        aws("s3", "sync", "folder", "s3://cli/sync")
        expect(aws("s3", "sync", "folder", "s3://cli/sync"), b"")
        (folder / "d0" / "0.txt").unlink()
        aws("s3", "sync", "--delete", "folder", "s3://cli/sync")
        aws("s3", "sync", "s3://cli/sync", "again")
        expect(
            sorted(p.name for p in Path("again").rglob("*.txt")),
            sorted(p.name for p in folder.rglob("*.txt")),
        )

    def pages() -> None:
        found = api("list-objects-v2", "--bucket", "cli", "--prefix", "sync/", "--page-size", 4)
        expect(len(found["Contents"]), 29)
        found = api(
            "list-objects-v2", "--bucket", "cli", "--prefix", "sync/", "--delimiter", "/", "--page-size", 1
        )
        expect([each["Prefix"] for each in found["CommonPrefixes"]], ["sync/d0/", "sync/d1/", "sync/d2/"])

    def presign() -> None:
        url = aws("s3", "presign", "s3://cli/a b+c&d=e.txt").decode().strip()
        with urllib.request.urlopen(url) as answer:
            expect(answer.read(), b"one")

    def ranges_and_conditions() -> None:
        found = api("get-object", "--bucket", "cli", "--key", "large", "--range", "bytes=5-9", "part")
        expect((found["ContentRange"], Path("part").read_bytes()), (f"bytes 5-9/{len(LARGE)}", LARGE[5:10]))
        try:
            api("put-object", "--bucket", "cli", "--key", "plain.txt", "--if-none-match", "*")
        except RuntimeError as error:
            expect("PreconditionFailed" in str(error), True)
        else:
            raise AssertionError("an object was replaced")

    def checksums() -> None:
        for algorithm in ("CRC32", "SHA1", "SHA256"):
            key = f"sum-{algorithm}"
            stored = api(
                "put-object",
                "--bucket",
                "cli",
                "--key",
                key,
                "--body",
                "one.txt",
                "--checksum-algorithm",
                algorithm,
            )
            found = api("head-object", "--bucket", "cli", "--key", key, "--checksum-mode", "ENABLED")
            expect(found[f"Checksum{algorithm}"], stored[f"Checksum{algorithm}"])

    def versions() -> None:
        aws("s3", "mb", "s3://cli-versions")
        api(
            "put-bucket-versioning",
            "--bucket",
            "cli-versions",
            "--versioning-configuration",
            "Status=Enabled",
        )
        for text in (b"1", b"2"):
            aws("s3", "cp", "-", "s3://cli-versions/key", data=text)
        aws("s3", "rm", "s3://cli-versions/key")
        found = api("list-object-versions", "--bucket", "cli-versions")
        expect((len(found["Versions"]), len(found["DeleteMarkers"])), (2, 1))
        first = found["Versions"][-1]["VersionId"]
        api("get-object", "--bucket", "cli-versions", "--key", "key", "--version-id", first, "old")
        expect(Path("old").read_bytes(), b"1")

    def wait() -> None:
        api("wait", "object-exists", "--bucket", "cli", "--key", "plain.txt")
        api("wait", "bucket-exists", "--bucket", "cli")

    def remove() -> None:
        aws("s3", "rm", "--recursive", "s3://cli/sync")
        aws("s3", "rb", "--force", "s3://cli")
        expect(b" cli\n" in aws("s3", "ls"), False)

    return (
        make_bucket,
        copy_each_way,
        copy_large,
        copy_from_a_stream,
        copy_and_move_inside,
        synchronise,
        pages,
        presign,
        ranges_and_conditions,
        checksums,
        versions,
        wait,
        remove,
    )


def s3fs() -> Iterable[Callable[[], None]]:
    import pandas as pd  # type: ignore[import-not-found, unused-ignore]
    import s3fs as client  # type: ignore[import-not-found]

    files = client.S3FileSystem()

    def write_and_read() -> None:
        files.mkdir("files")
        for key in KEYS:
            files.pipe(f"files/{key}", key.encode())
        expect(sorted(files.find("files")), sorted(f"files/{key}" for key in KEYS))
        expect(files.cat([f"files/{key}" for key in KEYS]), {f"files/{key}": key.encode() for key in KEYS})

    def walk_and_glob() -> None:
        expect([sorted(names) for _, _, names in files.walk("files/end")], [[".hidden"]])
        expect(files.glob("files/*.txt"), sorted(f"files/{key}" for key in KEYS if "/" not in key))
        expect(
            (files.isdir("files/dir"), files.isfile("files/plain.txt"), files.exists("files/none")),
            (True, True, False),
        )
        expect(files.du("files/plain.txt"), len("plain.txt"))

    def large() -> None:
        with files.open("files/large", "wb", block_size=5 << 20) as file:
            for start in range(0, len(LARGE), 1 << 20):
                file.write(LARGE[start : start + (1 << 20)])
        with files.open("files/large", "rb") as file:
            file.seek(7_000_000)
            expect(file.read(10), LARGE[7_000_000:7_000_010])
        expect(files.cat_ranges(["files/large"] * 2, [0, 9], [3, 12]), [LARGE[:3], LARGE[9:12]])
        expect(files.info("files/large")["size"], len(LARGE))

    def append() -> None:
        with files.open("files/large", "ab") as file:
            file.write(b"more")
        expect(files.tail("files/large", 4), b"more")
        with files.open("files/plain.txt", "ab") as file:
            file.write(b"more")
        expect(files.cat("files/plain.txt"), b"plain.txtmore")

    def copy_and_move() -> None:
        files.copy("files/large", "files/copy")
        files.mv("files/copy", "files/moved")
        expect((files.exists("files/copy"), files.info("files/moved")["size"]), (False, len(LARGE) + 4))

    def metadata() -> None:
        files.setxattr("files/plain.txt", copy_kwargs={"ContentType": "text/plain"}, color="red")
        expect(files.getxattr("files/plain.txt", "color"), "red")
        expect(files.metadata("files/plain.txt")["color"], "red")

    def sign() -> None:
        with urllib.request.urlopen(files.sign("files/large")) as answer:
            expect(answer.read() == LARGE + b"more", True)

    def folders() -> None:
        Path("up").mkdir(exist_ok=True)
        for number in range(20):
            Path("up", f"{number}.txt").write_text(str(number))
        files.put("up", "files/up", recursive=True)
        files.get("files/up", "down", recursive=True)
        expect(sorted(os.listdir("down")), sorted(os.listdir("up")))

    def frames() -> None:
        frame = pd.DataFrame({"id": range(1000), "name": [str(n) for n in range(1000)]})
        frame.to_parquet("s3://files/frame.parquet")
        expect(pd.read_parquet("s3://files/frame.parquet").equals(frame), True)
        frame.to_csv("s3://files/frame.csv", index=False)
        expect(len(pd.read_csv("s3://files/frame.csv")), 1000)

    def versions() -> None:
        aware = client.S3FileSystem(version_aware=True)
        aware.mkdir("files-versions")
        aware.call_s3(
            "put_bucket_versioning", Bucket="files-versions", VersioningConfiguration={"Status": "Enabled"}
        )
        aware.pipe("files-versions/key", b"1")
        aware.pipe("files-versions/key", b"2")
        found = aware.object_version_info("files-versions/key")
        expect(len(found), 2)
        first = next(each["VersionId"] for each in found if not each["IsLatest"])
        expect(aware.open("files-versions/key", version_id=first).read(), b"1")

    def remove() -> None:
        files.rm("files/up", recursive=True)
        expect(files.exists("files/up"), False)
        files.rm("files", recursive=True)
        expect(files.exists("files"), False)

    return (
        write_and_read,
        walk_and_glob,
        large,
        append,
        copy_and_move,
        metadata,
        sign,
        folders,
        frames,
        versions,
        remove,
    )


def main() -> None:
    for client in (aws_cli, s3fs):
        for step in client():
            wrong = ""
            try:
                step()
            except Exception as error:  # noqa: BLE001 - any error of a client is the result of the step
                traceback.print_exc()
                wrong = f"{type(error).__name__}: {error}"[:2000]
            print("RESULT " + json.dumps([f"{client.__name__}: {step.__name__}", wrong]), flush=True)


if __name__ == "__main__":
    main()
