"""Generates the page on server settings from their table."""

from __future__ import annotations

from mainstem.config import ENV_PREFIX, FILE_DEFAULT, FILE_ENV, SETTINGS
from tools.reference.markdown import MADE, code, table

_TEXT = f"""# Server settings

A flag overrides the environment variable, the variable overrides the TOML file, and the file overrides the default.
The variable is `{ENV_PREFIX}` and the name in capitals (`{ENV_PREFIX}DATA_DIR`); the key in the file is the name
(`data_dir`).

Set the file with `--config` or `{FILE_ENV}`. The default is `{FILE_DEFAULT}` in the current directory, if it exists.
An unknown key is an error. `mainstem config` shows every value and its source.

"""


def configuration_page() -> str:
    rows = [
        (code(row.flag), code(row.kind.metavar), code(row.shown(row.default)) or "none", row.help)
        for row in SETTINGS
    ]
    return MADE + _TEXT + table(("flag", "values", "default", "meaning"), rows)
