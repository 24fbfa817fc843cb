"""A model server for the tests of the clients: one process for all of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.helpers.openai_server import ScriptedOpenAI


@pytest.fixture(scope="session")
def openai_process() -> Iterator[ScriptedOpenAI]:
    with ScriptedOpenAI() as server:
        yield server


@pytest.fixture
def server(openai_process: ScriptedOpenAI) -> ScriptedOpenAI:
    """The server without scripts and without memory."""
    openai_process.reset()
    return openai_process
