"""Which Java Spark runs on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mainstem.errors import SparkMissing
from mainstem.spark import java as javas
from mainstem.spark.java import find_java, java_version, shim_home


def _java(folder: Path, version: str) -> Path:
    """A `java` that knows its version and nothing else."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2024-01-16' >&2\n")
    java.chmod(0o755)
    return java


@pytest.mark.parametrize(
    ("version", "major"), [("17.0.15", 17), ("21", 21), ("1.8.0_402", 8), ("25-ea", 25), ("eleven", 0)]
)
def test_versions_of_every_age_are_read(tmp_path: Path, version: str, major: int) -> None:
    assert java_version(_java(tmp_path, version)) == major


def test_what_does_not_run_is_no_java(tmp_path: Path) -> None:
    assert java_version(tmp_path / "missing") == 0


def test_java_home_comes_first(tmp_path: Path) -> None:
    _java(tmp_path / "home", "21.0.1")
    on_path = _java(tmp_path / "path", "17")
    environ = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(on_path.parent)}
    assert find_java(environ) == tmp_path / "home"


def test_a_java_home_that_is_too_old_gives_way_to_the_path(tmp_path: Path) -> None:
    _java(tmp_path / "home", "1.8.0")
    on_path = _java(tmp_path / "path", "17.0.2")
    environ = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(on_path.parent)}
    assert find_java(environ) == tmp_path / "path"


def test_a_link_on_the_path_leads_to_the_real_home(tmp_path: Path) -> None:
    real = _java(tmp_path / "jdk", "17.0.2")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(real)
    assert find_java({"PATH": str(tmp_path / "bin")}) == tmp_path / "jdk"


def test_without_any_one_sentence_names_what_was_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(javas, "_bundled_java", lambda: None)
    old = _java(tmp_path / "old", "11.0.2")
    with pytest.raises(SparkMissing, match=r"Java 17 or newer \(.*java is Java 11\)") as caught:
        find_java({"PATH": str(old.parent)})
    assert "\n" not in str(caught.value)


def test_the_shim_drops_the_one_module_and_passes_everything_else(tmp_path: Path) -> None:
    real = tmp_path / "it's here" / "java"
    real.parent.mkdir()
    real.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    real.chmod(0o755)
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "--add-modules=x", "", "$HOME"]
    shown = subprocess.run(
        [shim_home(real) / "bin" / "java", *arguments], capture_output=True, text=True, check=True
    )
    assert shown.stdout.split("\n")[:-1] == ["-cp", "a b", "--add-modules=x", "", "$HOME"]


@pytest.mark.slow
def test_spark_runs_on_the_java_of_pip(tmp_path: Path) -> None:
    commands = tmp_path / "bin"
    commands.mkdir()
    for folder in ("/bin", "/usr/bin"):
        for command in Path(folder).iterdir():
            if not command.name.startswith("java") and not (commands / command.name).exists():
                (commands / command.name).symlink_to(command)
    environ = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    script = (
        "from mainstem.spark.session import open_session; import os; s = open_session(master='local[1]'); "
        "print(os.environ['JAVA_HOME'], s.range(7).count())"
    )
    shown = subprocess.run(
        [sys.executable, "-c", script],
        env={**environ, "PATH": str(commands)},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert shown.returncode == 0, shown.stderr
    home, count = shown.stdout.split()
    assert "mainstem-java-" in home
    assert count == "7"
