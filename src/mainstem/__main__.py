"""`python -m mainstem`."""

from __future__ import annotations

from mainstem.cli.main import main

main()
