"""LiteLLM may fetch prices, news and headers when it is loaded. Ours does not."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

LOADED = """
import asyncio, json, socket

asked = []

def refuse(host, *_, **__):
    asked.append(str(host))
    raise OSError("nobody is asked here")

socket.getaddrinfo = refuse
socket.socket.connect = lambda self, address: refuse(address)

from shared.settings import ModelSettings
from worker.llm.clients.litellm_client import LiteLLMModel

asyncio.run(LiteLLMModel(ModelSettings(name="gemini/x")).preload())
print(json.dumps(asked))
"""


@pytest.mark.slow
def test_the_library_asks_nobody_when_it_is_loaded() -> None:
    """A worker starts where there is no internet, and tells nobody that it did."""
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) == []
