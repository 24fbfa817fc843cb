"""A few of the attacks in every `make test-all`; `python -m proof.redteam` plays all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from proof.redteam import corpus, dojo
from proof.redteam.dojo import rows_of
from tests.helpers.need import need

PATHS, CASES = 40, 60
"""One of so many: a few paths, all of which one fleet can play, and a dozen cases of AgentDojo."""


@pytest.mark.timeout(300)
async def test_no_laundering_path_gets_through(tmp_path: Path) -> None:
    """And each step is made unasked where no stranger wrote anything."""
    results = await corpus.measure(tmp_path / "corpus", every=PATHS)
    assert [one for one in results if not one.held] == []
    assert len(results) > 3


@pytest.mark.timeout(300)
async def test_no_attack_of_agentdojo_gets_through(tmp_path: Path) -> None:
    """Without approvals they do; with them, people can still get their work done."""
    need("AgentDojo", install=dojo.INSTALL, found=dojo.installed())
    figures = await dojo.measure(tmp_path / "agentdojo", every=CASES)
    assert [row for row in rows_of(figures) if row[2] is False] == []


def test_the_corpus_is_as_large_as_promised() -> None:
    """Each path has a name of its own."""
    names = [one.name for one in corpus.paths()]
    assert len(names) == len(set(names)) >= 60
