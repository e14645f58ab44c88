"""Apache Iceberg's REST Compatibility Kit: the catalog's tables, namespaces and views, through Iceberg's own client."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from mainstem.testing.server import ServerProcess
from tools.outside.suite import Suite, Tally, call, of_junit, program

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
    "org.eclipse.jetty:jetty-server:11.0.26",  # of the kit's own server, which is loaded and not started
    "org.eclipse.jetty:jetty-servlet:11.0.26",
    "org.xerial:sqlite-jdbc:3.49.1.0",
    "org.slf4j:slf4j-nop:2.0.17",
)
_CLASSES = (
    "org.apache.iceberg.rest.RESTCompatibilityKitCatalogTests",
    "org.apache.iceberg.rest.RESTCompatibilityKitViewCatalogTests",
)

# Where the kit places tables whose location it names.
_PLACES = (Path("/tmp/ns"), Path("/tmp/newdb"))

_SLASH = "access rules write a table of a namespace as namespace/table: a slash in a name would be ambiguous"


def _run(folder: Path) -> Tally:
    java, jars = program("java"), fetched_jars(folder)
    own = [place for place in _PLACES if not place.exists()]
    try:
        with tempfile.TemporaryDirectory(prefix="iceberg-kit-") as scratch:
            temporary = Path(scratch) / "tmp"
            temporary.mkdir()
            places = ",".join(map(str, (*_PLACES, temporary)))
            options = ("--text", "off", "--kafka", "off", "--table-locations", places)
            with ServerProcess(Path(scratch) / "data", *options) as server:
                url = f"http://{server.address('http')}/iceberg"
                tally = _checked(java, jars, url, Path(scratch))
                server.terminate()
            return tally
    finally:
        for place in own:
            shutil.rmtree(place, ignore_errors=True)


def _checked(java: str, jars: Path, url: str, scratch: Path) -> Tally:
    reports = scratch / "reports"
    output = call(
        [
            *(java, "-Xmx1g", f"-Djava.io.tmpdir={scratch / 'tmp'}", "-Drck.local=false"),
            *("-Drck.requires-namespace-create=true", "-Drck.supports-serverside-retry=true"),
            *("-Drck.supports-names-with-dot=true", "-cp", f"{jars}/*"),
            *("org.junit.platform.console.ConsoleLauncher", "execute", "--details=none"),
            *(f"--select-class={name}" for name in _CLASSES),
            f"--reports-dir={reports}",
        ],
        scratch,
        check=False,
        environment={"CATALOG_URI": url},
    )
    report = reports / "TEST-junit-jupiter.xml"
    return (of_junit(report) if report.exists() else Tally()).check_ran(output)


def fetched_jars(folder: Path) -> Path:
    """The folder with the kit and what it needs."""
    jars, complete = folder / f"jars-{ICEBERG}", folder / f"jars-{ICEBERG}.complete"
    if not complete.exists():
        (folder / "pom.xml").write_text(_pom())
        call(
            [program("mvn"), "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={jars}"], folder
        )
        complete.touch()
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


SUITES = (
    Suite(
        "iceberg-kit",
        ICEBERG,
        _run,
        {"*::testNamespaceWithSlash*": _SLASH, "*::testTableNameWithSlash*": _SLASH},
    ),
)
