"""The settings of a server, from the table that flags, environment and file are made from."""

from __future__ import annotations

from mainstem.config import ENV_PREFIX, FILE_DEFAULT, FILE_ENV, SETTINGS
from tools.reference.markdown import MADE, code, table

_TEXT = f"""# Settings of a server

A value comes from the first of these that has it: the flag, the variable, the TOML file, the default. The variable is
`{ENV_PREFIX}` and the name in capitals (`{ENV_PREFIX}DATA_DIR`); the key of the file is the name (`data_dir`).

The file is that of `--config` or `{FILE_ENV}`, else `{FILE_DEFAULT}` in the current directory if there is one. An
unknown key is an error. `mainstem config` shows every value and where it comes from.

"""


def configuration_page() -> str:
    rows = [
        (code(row.flag), code(row.kind.metavar), code(row.shown(row.default)) or "none", row.help)
        for row in SETTINGS
    ]
    return MADE + _TEXT + table(("flag", "takes", "default", ""), rows)
