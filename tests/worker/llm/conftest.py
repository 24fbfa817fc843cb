"""A model server for the tests of the clients: one for all of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.helpers.openai_server import ScriptedOpenAI


@pytest.fixture(scope="session")
def openai_server() -> Iterator[ScriptedOpenAI]:
    with ScriptedOpenAI(in_thread=True) as server:
        yield server


@pytest.fixture
def server(openai_server: ScriptedOpenAI) -> ScriptedOpenAI:
    """The server without scripts and without memory."""
    openai_server.reset()
    return openai_server
