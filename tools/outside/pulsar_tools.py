"""Apache Pulsar's own programs, from Maven: pulsar-admin and pulsar-client in pulsar-shell, and pulsar-perf.

Each command of the script is a test: it passes if it prints what is expected. All of them share one server and one JVM.
"""

from __future__ import annotations

import re
import subprocess
import traceback
from pathlib import Path
from typing import NamedTuple

from mainstem.testing.server import ServerProcess
from tools.outside.suite import Suite, Tally, call, program

VERSION = "4.0.6"  # the newest of which Maven has every part
PATIENCE_S = 600.0
PERF_MESSAGES = 20_000
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>mainstem</groupId>
  <artifactId>outside</artifactId>
  <version>1</version>
  <dependencies>{dependencies}</dependencies>
</project>
"""
# pulsar-perf names the broker among its dependencies, which its commands for clients do not need.
_DEPENDENCY = """<dependency><groupId>org.apache.pulsar</groupId><artifactId>{name}</artifactId>
<version>{version}</version><exclusions>
<exclusion><groupId>org.apache.pulsar</groupId><artifactId>pulsar-broker</artifactId></exclusion>
<exclusion><groupId>*</groupId><artifactId>jetcd-core-shaded</artifactId></exclusion>
</exclusions></dependency>"""
_ARTIFACTS = ("pulsar-client-tools", "pulsar-testclient")
_EXECUTING = re.compile(r"^\[\d+/\d+\] Executing (.*)$")
_PROGRESS = re.compile(r"^\[\d+/\d+\] \W")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")

_ONE, _MANY = "persistent://acme/shop/one", "persistent://acme/shop/many"


class Step(NamedTuple):
    command: str
    prints: str = ""  # a pattern; empty: nothing that says `Reason:`


_SCRIPT: tuple[Step, ...] = (
    Step("admin clusters list", "standalone"),
    Step("admin clusters get standalone", "brokerServiceUrl"),
    Step("admin brokers list standalone", r"127\.0\.0\.1"),
    Step("admin brokers healthcheck", "ok"),
    Step("admin tenants create acme --allowed-clusters standalone --admin-roles ann"),
    Step("admin tenants list", "acme"),
    Step("admin tenants get acme", "ann"),
    Step("admin tenants update acme --allowed-clusters standalone --admin-roles bob"),
    Step("admin namespaces create acme/shop"),
    Step("admin namespaces list acme", "acme/shop"),
    Step("admin namespaces policies acme/shop", "replication_clusters"),
    Step("admin namespaces bundles acme/shop", "boundaries"),
    Step("admin namespaces set-retention acme/shop --time 1h --size 100M"),
    Step("admin namespaces get-retention acme/shop", '"retentionTimeInMinutes" : 60'),
    Step("admin namespaces remove-retention acme/shop"),
    Step("admin namespaces set-message-ttl acme/shop -ttl 3600"),
    Step("admin namespaces get-message-ttl acme/shop", "3600"),
    Step("admin namespaces remove-message-ttl acme/shop"),
    Step("admin namespaces set-backlog-quota acme/shop --limit 10G --policy producer_exception"),
    Step("admin namespaces get-backlog-quotas acme/shop", "limitSize=10737418240"),
    Step("admin namespaces remove-backlog-quota acme/shop"),
    Step("admin namespaces set-deduplication acme/shop --enable"),
    Step("admin namespaces get-deduplication acme/shop", "true"),
    Step("admin namespaces remove-deduplication acme/shop"),
    Step("admin namespaces set-publish-rate acme/shop -m 1000"),
    Step("admin namespaces get-publish-rate acme/shop", '"publishThrottlingRateInMsg" : 1000'),
    Step("admin namespaces remove-publish-rate acme/shop"),
    Step("admin namespaces set-dispatch-rate acme/shop -md 1000"),
    Step("admin namespaces get-dispatch-rate acme/shop", '"dispatchThrottlingRateInMsg" : 1000'),
    Step("admin namespaces remove-dispatch-rate acme/shop"),
    Step("admin namespaces set-schema-compatibility-strategy acme/shop -c BACKWARD"),
    Step("admin namespaces get-schema-compatibility-strategy acme/shop", "BACKWARD"),
    Step("admin namespaces grant-permission acme/shop --role ann --actions produce,consume"),
    Step("admin namespaces permissions acme/shop", r"ann .*consume"),
    Step("admin namespaces revoke-permission acme/shop --role ann"),
    Step("admin namespaces set-max-consumers-per-topic acme/shop -c 5"),
    Step("admin namespaces get-max-consumers-per-topic acme/shop", "5"),
    Step("admin namespaces remove-max-consumers-per-topic acme/shop"),
    Step("admin namespaces set-max-producers-per-topic acme/shop -p 5"),
    Step("admin namespaces set-subscription-expiration-time acme/shop -t 60"),
    Step(
        "admin namespaces set-inactive-topic-policies acme/shop -e -t 1h -m delete_when_no_subscriptions",
    ),
    Step("admin namespaces get-inactive-topic-policies acme/shop", "3600"),
    Step("admin namespaces set-persistence acme/shop -e 2 -w 2 -a 2 -r 0"),
    Step(f"admin topics create {_ONE}"),
    Step(f"admin topics create-partitioned-topic {_MANY} -p 2"),
    Step(f"admin topics update-partitioned-topic {_MANY} -p 3"),
    Step(f"admin topics get-partitioned-topic-metadata {_MANY}", '"partitions" : 3'),
    Step("admin topics list acme/shop", _ONE),
    Step("admin topics list-partitioned-topics acme/shop", _MANY),
    Step(f"client produce {_ONE} -m hello,world -n 2"),
    Step(f"client consume {_ONE} -s consumed -p Earliest -n 4", "hello"),
    Step(f"admin topics create-subscription {_ONE} -s s -m earliest"),
    Step(f"admin topics subscriptions {_ONE}", "s"),
    Step(f"admin topics stats {_ONE}", '"msgInCounter" : 4'),
    Step(f"admin topics partitioned-stats {_MANY} --per-partition", "many-partition-2"),
    Step(f"admin topics stats-internal {_ONE}", '"numberOfEntries" : 4'),
    Step(f"admin topics peek-messages {_ONE} -s s -n 2", "world"),
    Step(f"admin topics examine-messages {_ONE} -i earliest -m 1", "hello"),
    Step(f"admin topics last-message-id {_ONE}", '"entryId" : 3'),
    Step(f"admin topics skip {_ONE} -s s -n 1"),
    Step(f"admin topics reset-cursor {_ONE} -s s -t 1h"),
    Step(f"admin topics reset-cursor {_ONE} -s s -m earliest"),
    Step(f"admin topics analyze-backlog {_ONE} -s s", '"messages" : 4'),
    Step(f"admin topics expire-messages {_ONE} -s s -t 3600"),
    Step(f"admin topics expire-messages-all-subscriptions {_ONE} -t 3600"),
    Step(f"admin topics clear-backlog {_ONE} -s s"),
    Step(f"admin topics update-subscription-properties {_ONE} -s s -p a=b"),
    Step(f"admin topics get-subscription-properties {_ONE} -s s", "a.*b"),
    Step(f"admin topics unsubscribe {_ONE} -s s"),
    Step(f"admin topics update-properties {_ONE} -p x=y"),
    Step(f"admin topics get-properties {_ONE}", r"x\s+y"),
    Step(f"admin topics remove-properties {_ONE} -k x"),
    Step(f"admin topics compaction-status {_ONE}", "not been run"),
    Step(f"admin topics compact {_ONE}"),
    Step(f"admin topics lookup {_ONE}", "pulsar://"),
    Step(f"admin topics bundle-range {_ONE}", "0x00000000"),
    Step(f"admin topics unload {_ONE}"),
    Step(f"admin topics grant-permission {_ONE} --role ann --actions consume"),
    Step(f"admin topics permissions {_ONE}", "ann"),
    Step(f"admin topics revoke-permission {_ONE} --role ann"),
    Step(f"admin topicPolicies set-retention {_ONE} -t 2h -s 10M"),
    Step(f"admin topicPolicies get-retention {_ONE}", '"retentionTimeInMinutes" : 120'),
    Step(f"admin topicPolicies set-message-ttl {_ONE} -t 60"),
    Step(f"admin topicPolicies get-message-ttl {_ONE}", "60"),
    Step(f"admin topicPolicies set-backlog-quota {_ONE} -l 1M -p consumer_backlog_eviction"),
    Step(f"admin topicPolicies get-backlog-quota {_ONE}", "consumer_backlog_eviction"),
    Step(f"admin topicPolicies set-max-producers {_ONE} -p 5"),
    Step(f"admin topicPolicies get-max-producers {_ONE}", "5"),
    Step(f"admin topicPolicies set-publish-rate {_ONE} -m 1000"),
    Step(f"admin topicPolicies get-publish-rate {_ONE}", '"publishThrottlingRateInMsg" : 1000'),
    Step(f"admin topicPolicies remove-publish-rate {_ONE}"),
    Step(f"admin topicPolicies set-dispatch-rate {_ONE} -md 1000"),
    Step(f"admin topicPolicies get-dispatch-rate {_ONE}", '"dispatchThrottlingRateInMsg" : 1000'),
    Step(f"admin schemas delete {_ONE}"),
    Step(f"admin topics terminate {_ONE}", "successfully terminated"),
    Step(f"admin topics truncate {_ONE}"),
    Step(f"admin topics delete {_ONE}"),
    Step(f"admin topics delete-partitioned-topic {_MANY}"),
    Step("admin namespaces delete acme/shop"),
    Step("admin tenants delete acme"),
    Step("admin broker-stats topics"),
    Step("admin functions list --tenant public --namespace default"),
)

_NO_EFFECT = "a policy without effect is refused, with the reason"
_EXPECTED = {
    "admin namespaces set-persistence *": _NO_EFFECT,
    "admin broker-stats *": "metrics are at /metrics",
    "admin functions *": "there are no functions",
}


def run(folder: Path) -> Tally:
    _fetch(folder)
    tally = Tally()
    with ServerProcess(folder / "data", "--text", "off", "--kafka", "off") as server:
        try:
            _shell(folder, server, tally)
        except Exception:  # noqa: BLE001 - it is the suite's result
            tally.failed["pulsar-shell"] = traceback.format_exc()[-3000:]
        for work in ("produce", "consume"):
            wrong = _perf(folder, server, work)
            if wrong:
                tally.failed[f"pulsar-perf {work}"] = wrong
            else:
                tally.passed.append(f"pulsar-perf {work}")
    return tally


def _fetch(folder: Path) -> None:
    javac, maven = program("javac"), program("mvn")
    program("java")
    rows = "".join(_DEPENDENCY.format(name=name, version=VERSION) for name in _ARTIFACTS)
    wanted = _POM.format(dependencies=rows)
    pom, jars = folder / "pom.xml", folder / "jars"
    if not pom.exists() or pom.read_text() != wanted or not jars.exists():
        pom.write_text(wanted)
        call([maven, "-q", "dependency:copy-dependencies", f"-DoutputDirectory={jars}"], folder)
    (folder / "classes").mkdir(exist_ok=True)
    source = Path(__file__).parent / "pulsar_java" / "PulsarPerf.java"
    call([javac, "-cp", f"{jars}/*", "-d", folder / "classes", source], folder)


def _java(folder: Path, main: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    classes = f"{folder / 'jars'}/*:{folder / 'classes'}"
    return subprocess.run(
        [program("java"), "-Xmx512m", f"-Duser.home={folder}", "-cp", classes, main, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=PATIENCE_S,
        check=False,
    )


def _shell(folder: Path, server: ServerProcess, tally: Tally) -> None:
    settings, script = folder / "client.conf", folder / "script.txt"
    settings.write_text(
        f"webServiceUrl=http://{server.address('http')}\nbrokerServiceUrl=pulsar://{server.address('pulsar')}\n"
    )
    script.write_text("".join(f"{step.command}\n" for step in _SCRIPT))
    done = _java(folder, "org.apache.pulsar.shell.PulsarShell", "-c", str(settings), "-f", str(script))
    (folder / "shell.log").write_text(done.stdout)
    printed = _blocks(done.stdout)
    for step in _SCRIPT:
        output = printed.get(step.command)
        if output is None:
            tally.failed[step.command] = "it was not run:\n" + done.stdout[-2000:]
        elif "Reason:" in output or "Unmatched" in output or not re.search(step.prints, output):
            tally.failed[step.command] = output[-2000:]
        else:
            tally.passed.append(step.command)


def _blocks(output: str) -> dict[str, str]:
    """What each command printed."""
    found: dict[str, list[str]] = {}
    current: list[str] = []
    for line in _COLOURS.sub("", output).splitlines():
        begins = _EXECUTING.match(line)
        if begins:
            current = found.setdefault(begins[1], [])
        elif not _PROGRESS.match(line):
            current.append(line)
    return {command: "\n".join(lines) for command, lines in found.items()}


def _perf(folder: Path, server: ServerProcess, work: str) -> str:
    """What went wrong; empty if nothing did."""
    url, topic = f"pulsar://{server.address('pulsar')}", "persistent://public/default/perf"
    given = {"produce": ("-r", "20000", "-s", "100"), "consume": ("-sp", "Earliest")}[work]
    done = _java(folder, "PulsarPerf", work, "-m", str(PERF_MESSAGES), "-u", url, *given, topic)
    return "" if done.returncode == 0 else done.stdout[-3000:]


SUITES = (Suite("pulsar-tools", VERSION, run, _EXPECTED),)
