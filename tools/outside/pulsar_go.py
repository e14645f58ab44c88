"""pulsar-client-go's tests: its Go module contains them.

They use fixed addresses: 6650, and 8080 for the admin API, both of localhost. Tests that need more of the project's own
set-up are left out: certificates and tokens, several clusters, proxies and brokers in containers.

    OUTSIDE_PULSAR_GO_RUN='^TestReader' python -m tools.outside pulsar-client-go   # only these
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import urllib.request
from pathlib import Path

from mainstem.testing.server import ServerProcess
from tools.outside.suite import Suite, Tally, call, of_go, program

VERSION = "v0.19.0"
# Certificates and tokens
_SECURED = ("TLS", "Tls", "HTTPS", "Auth", "OAuth", "Oauth", "Token", "Athenz", "Certificate", "TestTxn_")
_CLUSTERS = ("Cluster", "BlueGreen", "ExtensibleLoadManager")
_CONTAINERS = (
    "KeepReconnecting",
    "OnMaxReconnect",
    "WhileReconnecting",
    "ReconnectConsumer",
    "ReconnectedBroker",
)
# It subscribes to the dead letters at their end, maybe after its letter came; then it panics, which ends all tests.
_PANICS = ("TestWithDeadLetterTopicDeadLetterTopicProducerName",)
_BY_CHANCE = (
    # One of two consumers gets all of three keys one time in four.
    "TestKeyBasedBatchProducerConsumerKeyShared",
    "TestConsumerKeySharedWithDelayedMessages",
    "TestConsumerKeySharedWithOrderingKey",
    "TestSendContextExpired",  # backlog quotas are checked every 10 seconds, and it waits for 6
)
_LEFT_OUT = (*_SECURED, *_CLUSTERS, *_CONTAINERS, *_PANICS, *_BY_CHANCE)


def run(folder: Path) -> Tally:
    go = program("go")
    fetched = json.loads(
        call([go, "mod", "download", "-json", f"github.com/apache/pulsar-client-go@{VERSION}"], folder)
    )
    source = folder / "source"
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(fetched["Dir"], source)
    call(["chmod", "-R", "u+w", source], folder)
    address = ("--pulsar", "127.0.0.1:6650", "--pulsar-advertise", "localhost:6650")
    with (
        tempfile.TemporaryDirectory(dir=folder) as data,
        ServerProcess(
            Path(data) / "data", *address, "--http", "127.0.0.1:8080", "--text", "off", "--kafka", "off"
        ),
    ):
        for namespace in ("public/dlq", "public/test_v2", "private/auth"):
            request = urllib.request.Request(
                f"http://127.0.0.1:8080/admin/v2/namespaces/{namespace}", method="PUT"
            )
            urllib.request.urlopen(request).close()
        output = call(
            [
                *(go, "test", "-json", "-timeout", "50m", "-skip", "|".join(_LEFT_OUT)),
                *("-run", os.environ.get("OUTSIDE_PULSAR_GO_RUN", ".")),
                "./pulsar/",
            ],
            source,
            check=False,
        )
    (folder / "output.json").write_text(output)
    return of_go(output).check_ran(output)


_ONE_PARTITION = "it creates a partitioned topic with one partition, which is not partitioned here"
_SMALL_MESSAGES = "it expects a server that takes messages of at most 1 MiB"

SUITES = (
    Suite(
        "pulsar-client-go",
        VERSION,
        run,
        {
            "TestPartitionUpdateFailed": _ONE_PARTITION,
            "TestProducerReconnectWhenBacklogQuotaExceed": _ONE_PARTITION,
            "TestChunkSize": _SMALL_MESSAGES,
            "TestMaxMessageSize": _SMALL_MESSAGES,
        },
    ),
)
