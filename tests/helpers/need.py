"""Checks that need something the machine may lack."""

from __future__ import annotations

import os
import shutil

import pytest


def need(name: str, *, install: str | None = None, found: bool | None = None) -> None:
    """Go on when the program `name` is there (or `found` says so); else skip, saying what to install.

    With SHOAL_REQUIRE_ALL=1 a missing thing is a failure, so that a skip can never hide on the machine that must
    check everything.
    """
    if found if found is not None else shutil.which(name) is not None:
        return
    text = f"needs {name!r}: {install or f'install it with your package manager (Debian: apt-get install {name})'}"
    if os.environ.get("SHOAL_REQUIRE_ALL") == "1":
        pytest.fail(f"SHOAL_REQUIRE_ALL=1, and this check {text}", pytrace=False)
    pytest.skip(f"this check {text}")
