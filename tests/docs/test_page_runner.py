"""What runs the documents' blocks finds those that fail."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from .blocks import blocks_of


def run(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    page = folder / "page.md"
    page.write_text(text)
    asked = folder / "blocks.json"
    blocks = [block._asdict() for block in blocks_of(page) if block.runs or block.comment == "prints"]
    asked.write_text(json.dumps({"page": "page.md", "blocks": blocks}))
    runner = Path(__file__).with_name("page_runner.py")
    return subprocess.run(
        [sys.executable, str(runner), str(asked)], capture_output=True, text=True, timeout=60
    )


def test_python_shell_and_what_they_print_go_together(tmp_path: Path) -> None:
    text = """# A page
<!-- before: given = 41 -->
```python
answer = given + 1
```

```python
print(answer)
```

<!-- prints -->
```text
42
```

```sh
echo one && echo two
```

<!-- prints -->
```text
two
```

<!-- not run: it would fail -->
```sh
false
```
"""
    done = run(tmp_path, text)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_shell_block_fails_with_its_first_command(tmp_path: Path) -> None:
    done = run(tmp_path, "\n\n```sh\nfalse | cat\ntrue\n```\n")
    assert done.returncode == 1
    assert "page.md:3 failed" in done.stderr


def test_a_python_block_that_raises_is_named(tmp_path: Path) -> None:
    done = run(tmp_path, "```python\n1 / 0\n```\n")
    assert done.returncode == 1
    assert "page.md:1 failed" in done.stderr
    assert "ZeroDivisionError" in done.stderr


def test_what_was_not_printed_is_told(tmp_path: Path) -> None:
    done = run(tmp_path, "```python\nprint(1)\n```\n\n<!-- prints -->\n```text\n2\n```\n")
    assert done.returncode == 1
    assert "not printed: ['2']" in done.stderr
