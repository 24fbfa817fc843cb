"""The environment of `make tools`."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_tools_are_locked_by_hash_and_name_no_host() -> None:
    """As all other packages; what is asked for is what is locked."""
    lock = (ROOT / "tools" / "requirements.txt").read_text()
    assert "://" not in lock
    assert not re.search(r"^\s*(-i|--index-url|--extra-index-url|--find-links|-f|--trusted-host)\b", lock, re.MULTILINE)
    blocks = re.findall(r"^(\S+)==(\S+)[^\n]*((?:\n    --hash=sha256:[0-9a-f]{64}(?: \\)?)+)", lock, re.MULTILINE)
    assert len(blocks) == len(re.findall(r"^\S", lock, re.MULTILINE))
    wanted = re.findall(r"^([\w-]+==\S+)$", (ROOT / "tools" / "requirements.in").read_text(), re.MULTILINE)
    assert set(wanted) <= {f"{name}=={version}" for name, version, _ in blocks}


def test_the_tools_come_in_by_the_options_of_all_packages() -> None:
    """By hash, wheels only, in an environment beside the one that Shoal runs in."""
    makefile = (ROOT / "Makefile").read_text()
    assert "$(wordlist 2,99,$(INSTALL)) --no-compile -r tools/requirements.txt" in makefile
    assert "make tools" in (ROOT / ".ci" / "run").read_text()
