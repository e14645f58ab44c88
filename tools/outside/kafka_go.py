"""franz-go's tests: its Go module contains them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from mainstem.testing.broker import throw_away_broker
from tools.outside.suite import Suite, Tally, call, of_go, program

VERSION = "v1.22.2"
RECORDS = 50_000  # of each of its large tests, which default to 500,000


def run(folder: Path) -> Tally:
    go = program("go")
    fetched = json.loads(
        call([go, "mod", "download", "-json", f"github.com/twmb/franz-go@{VERSION}"], folder)
    )
    source = folder / "source"
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(fetched["Dir"], source)
    call(["chmod", "-R", "u+w", source], folder)
    with throw_away_broker() as broker:
        output = call(
            [go, "test", "-json", "-timeout", "50m", "./..."],
            source / "pkg" / "kgo",
            check=False,
            environment={
                "KGO_SEEDS": broker.bootstrap_servers,
                "KGO_TEST_RF": "1",
                "KGO_TEST_RECORDS": str(RECORDS),
            },
        )
    return of_go(output).check_ran(output)


_NO_OFFSETS_TOPIC = "offsets of groups are state of the ledger: there is no topic __consumer_offsets"
EXPECTED = dict.fromkeys(
    ("TestConsumeRegex", "TestConsumeRegexShareSkipsInternal", "Test848RegexBrokerResolves"),
    _NO_OFFSETS_TOPIC,
)
SUITES = (Suite("franz-go", VERSION, run, EXPECTED),)
