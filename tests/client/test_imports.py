"""The client of a server loads nothing that only the server needs."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import sys
import mainstem.client
from mainstem.client import Consumer, Record, TopicPartition
client = mainstem.Client("http://127.0.0.1:1")
client.close()
heavy = {"numba", "llvmlite", "pyarrow", "numpy", "pyspark", "pandas", "uvicorn", "kio"}
print(sorted(heavy & sys.modules.keys()))
"""


def test_the_client_loads_no_part_of_the_server() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
