"""Apache Iceberg's REST Compatibility Kit against the catalog.

`python -m tools.outside.iceberg_kit [CHECK …]` fetches the kit with Maven, starts a server, runs every check (or those
named), and compares the failures with `EXPECTED`. The exit status is 1 for a failure that is not expected, and for an
expected one that passes. Where java or mvn is missing, it prints the reason and exits with 0.

Everything fetched stays in the cache directory: `MAINSTEM_OUTSIDE_CACHE`, else `~/.cache/mainstem-outside`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable
from pathlib import Path

from mainstem.testing.server import ServerProcess

ICEBERG = "1.10.0"

_JARS = (
    f"org.apache.iceberg:iceberg-open-api:{ICEBERG}:tests",
    f"org.apache.iceberg:iceberg-open-api:{ICEBERG}:test-fixtures",
    f"org.apache.iceberg:iceberg-core:{ICEBERG}",
    f"org.apache.iceberg:iceberg-core:{ICEBERG}:tests",
    f"org.apache.iceberg:iceberg-api:{ICEBERG}:tests",
    "org.apache.hadoop:hadoop-client-api:3.4.1",  # Iceberg's access to local files
    "org.apache.hadoop:hadoop-client-runtime:3.4.1",
    "org.junit.platform:junit-platform-console-standalone:1.13.4",
    "org.assertj:assertj-core:3.27.3",
    "org.awaitility:awaitility:4.3.0",
    "org.mockito:mockito-core:4.11.0",
    "org.eclipse.jetty:jetty-server:11.0.26",  # the kit's own server, which loads but does not run
    "org.eclipse.jetty:jetty-servlet:11.0.26",
    "org.xerial:sqlite-jdbc:3.49.1.0",
    "org.slf4j:slf4j-nop:2.0.17",
)
_SUITES = (
    "org.apache.iceberg.rest.RESTCompatibilityKitCatalogTests",
    "org.apache.iceberg.rest.RESTCompatibilityKitViewCatalogTests",
)

# Where the kit places tables whose location it names.
_FOLDERS = (Path("/tmp/ns"), Path("/tmp/newdb"))

# Checks that fail, each with the reason why the refusal is right.
_SLASH = "access rules write a table of a namespace as namespace/table: a slash in a name would be ambiguous"
EXPECTED = {"tables.testNamespaceWithSlash": _SLASH, "tables.testTableNameWithSlash": _SLASH}

_TIMEOUT_S = 900


def main(checks: Iterable[str] = ()) -> int:
    missing = [name for name in ("java", "mvn") if shutil.which(name) is None]
    if missing:
        print(f"skipped: {' and '.join(missing)} not found")
        return 0
    jars = _fetched()
    with tempfile.TemporaryDirectory(prefix="iceberg-kit-") as scratch:
        reports = Path(scratch) / "reports"
        own = [folder for folder in _FOLDERS if not folder.exists()]
        temporary = Path(scratch) / "tmp"
        temporary.mkdir()
        places = ",".join(map(str, (*_FOLDERS, temporary)))
        options = ("--text", "off", "--kafka", "off", "--table-locations", places)
        with ServerProcess(Path(scratch) / "data", *options) as server:
            _run(jars, f"http://{server.address('http')}/iceberg", reports, temporary, list(checks))
            server.terminate()
        for folder in own:
            shutil.rmtree(folder, ignore_errors=True)
        results = _results(reports)
    return _compared(results, whole=not checks)


def _fetched() -> Path:
    """The directory with the kit and what it needs."""
    cache = Path(os.environ.get("MAINSTEM_OUTSIDE_CACHE") or Path.home() / ".cache" / "mainstem-outside")
    folder = cache / f"iceberg-kit-{ICEBERG}"
    jars = folder / "jars"
    if (folder / "complete").exists():
        return jars
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pom.xml").write_text(_pom())
    subprocess.run(
        ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={jars}"],
        cwd=folder,
        check=True,
        timeout=_TIMEOUT_S,
    )
    (folder / "complete").touch()
    return jars


def _pom() -> str:
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>mainstem</groupId><artifactId>iceberg-kit</artifactId><version>1</version>"
        f"<dependencies>{''.join(map(_dependency, _JARS))}</dependencies></project>"
    )


def _dependency(name: str) -> str:
    group, artifact, version, *classifier = name.split(":")
    kind = f"<classifier>{classifier[0]}</classifier>" if classifier else ""
    return (
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version>{kind}</dependency>"
    )


def _run(jars: Path, url: str, reports: Path, temporary: Path, checks: list[str]) -> None:
    selected = [f"--select-class={suite}" for suite in _SUITES]
    if checks:
        selected += [f"--include-methodname=.*\\.({'|'.join(checks)})"]
    done = subprocess.run(
        [
            "java",
            "-Xmx1g",
            "-Drck.local=false",
            "-Drck.requires-namespace-create=true",
            "-Drck.supports-serverside-retry=true",
            "-Drck.supports-names-with-dot=true",
            f"-Djava.io.tmpdir={temporary}",
            "-cp",
            f"{jars}/*",
            "org.junit.platform.console.ConsoleLauncher",
            "execute",
            *selected,
            "--details=none",
            f"--reports-dir={reports}",
        ],
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        env={**os.environ, "CATALOG_URI": url},
        check=False,
    )
    if not reports.exists():
        raise RuntimeError(f"the kit did not run: {done.stdout[-2000:]} {done.stderr[-2000:]}")


def _results(reports: Path) -> dict[str, str]:
    """Check → `passed`, `skipped` or the message of its failure."""
    results: dict[str, str] = {}
    for report in reports.glob("*.xml"):
        for case in ElementTree.parse(report).iter("testcase"):
            suite = "views" if "ViewCatalog" in (case.get("classname") or "") else "tables"
            name = f"{suite}.{(case.get('name') or '').partition('(')[0]}"
            at = 1
            while name in results:  # a check with parameters runs several times
                at += 1
                name = f"{name.partition('[')[0]}[{at}]"
            wrong = case.find("failure") if case.find("error") is None else case.find("error")
            if wrong is not None:
                results[name] = (wrong.get("message") or wrong.text or "failed").strip() or "failed"
            else:
                results[name] = "passed" if case.find("skipped") is None else "skipped"
    return results


def _compared(results: dict[str, str], *, whole: bool) -> int:
    unexpected = 0
    for name, result in sorted(results.items()):
        if result in ("passed", "skipped"):
            stale = name in EXPECTED and result == "passed"
            unexpected += stale
            print(f"{name:70} {'passed, but is expected to fail' if stale else result}")
        elif name in EXPECTED:
            print(f"{name:70} refused: {EXPECTED[name]}")
        else:
            unexpected += 1
            print(f"{name:70} FAILED: {' '.join(result.split())[:600]}")
    failed = sum(result not in ("passed", "skipped") for result in results.values())
    passed = sum(result == "passed" for result in results.values())
    print(f"\n{len(results)} checks: {passed} passed, {failed} failed, {unexpected} unexpected")
    return int(bool(unexpected) or (whole and not passed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
