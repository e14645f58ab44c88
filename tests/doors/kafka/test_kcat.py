"""kcat on the command line."""

from __future__ import annotations

import json
import os
import shutil
import subprocess

import pytest

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.fixture(scope="module")
def kcat() -> str:
    """The program, from Debian's packages if necessary. CI must have it."""
    if not shutil.which("kcat") and os.geteuid() == 0 and shutil.which("apt-get"):
        for step in (["update"], ["install", "-y", "kcat"]):
            subprocess.run(["apt-get", "-q", *step], capture_output=True, check=False, timeout=240)
    found = shutil.which("kcat")
    if found is None:
        if os.environ.get("CI") == "true":
            pytest.fail("kcat is not there and could not be installed")
        pytest.skip("kcat is not installed: apt-get install kcat")
    return found


def run(kcat: str, bootstrap: str, *arguments: str, given: str = "") -> str:
    done = subprocess.run(
        [kcat, "-b", bootstrap, *arguments],
        input=given,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("codec", CODECS)
def test_what_kcat_writes_it_reads_back_with_every_codec(kcat: str, bootstrap: str, codec: str) -> None:
    topic = f"kcat-{codec}"
    lines = [f"key{number}:value {number} {'x' * 200}" for number in range(200)]
    run(kcat, bootstrap, "-P", "-t", topic, "-K:", "-z", codec, "-H", "h=1", given="\n".join(lines) + "\n")
    said = run(kcat, bootstrap, "-C", "-t", topic, "-e", "-q", "-o", "beginning", "-f", "%o %k:%s %h\n")
    assert said.splitlines() == [f"{number} {line} h=1" for number, line in enumerate(lines)]


def test_an_idempotent_write_arrives_and_the_tail_can_be_read(kcat: str, bootstrap: str) -> None:
    run(kcat, bootstrap, "-P", "-t", "kcat-once", "-X", "enable.idempotence=true", given="a\nb\n")
    said = run(kcat, bootstrap, "-C", "-t", "kcat-once", "-e", "-q", "-o", "-1", "-f", "%s\n")
    assert said == "b\n"


def test_its_list_shows_topics_and_this_broker(kcat: str, bootstrap: str) -> None:
    run(kcat, bootstrap, "-P", "-t", "kcat-listed", given="x\n")
    seen = json.loads(run(kcat, bootstrap, "-L", "-J"))
    topics = {topic["topic"]: topic for topic in seen["topics"]}
    assert [partition["partition"] for partition in topics["kcat-listed"]["partitions"]] == [0]
    assert bootstrap in {broker["name"] for broker in seen["brokers"]}


def test_a_group_of_one_continues_where_it_stopped(kcat: str, bootstrap: str) -> None:
    group = ("-G", "kcat-group", "-X", "auto.offset.reset=earliest", "-e", "-q", "kcat-grouped")
    run(kcat, bootstrap, "-P", "-t", "kcat-grouped", given="1\n2\n")
    assert run(kcat, bootstrap, *group).splitlines() == ["1", "2"]
    run(kcat, bootstrap, "-P", "-t", "kcat-grouped", given="3\n")
    assert run(kcat, bootstrap, *group).splitlines() == ["3"]


def test_a_time_finds_the_first_record_after_it(kcat: str, bootstrap: str) -> None:
    run(kcat, bootstrap, "-P", "-t", "kcat-times", given="old\n")
    (stamp,) = run(kcat, bootstrap, "-C", "-t", "kcat-times", "-e", "-q", "-f", "%T\n").split()
    later = run(kcat, bootstrap, "-Q", "-t", f"kcat-times:0:{int(stamp)}")
    assert "offset 0" in later
