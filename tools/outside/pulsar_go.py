"""pulsar-client-go's tests: its Go module contains them.

They use fixed addresses: 6650, and 8080 for the admin API, both of localhost. Tests that need more of the project's own
set-up are left out: certificates and tokens, several clusters, proxies and brokers in containers.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import urllib.request
from pathlib import Path

from mainstem.testing.server import ServerProcess
from tools.outside.suite import Suite, Tally, call, of_go, program

VERSION = "v0.19.0"
_LEFT_OUT = (
    *("TLS", "Tls", "Auth", "OAuth", "Oauth", "Token", "Athenz", "Certificate"),  # certificates and tokens
    *("Cluster", "BlueGreen", "ExtensibleLoadManager"),  # several brokers or clusters
    *(
        "KeepReconnecting",
        "OnMaxReconnect",
        "WhileReconnecting",
        "ReconnectConsumer",
        "ReconnectedBroker",
    ),  # containers
)


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
            [go, "test", "-json", "-timeout", "50m", "-skip", "|".join(_LEFT_OUT), "./pulsar/"],
            source,
            check=False,
        )
    (folder / "output.json").write_text(output)
    return of_go(output).check_ran(output)


SUITES = (Suite("pulsar-client-go", VERSION, run, {}),)
