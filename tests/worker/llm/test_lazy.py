"""A client that is made when it is needed."""

from __future__ import annotations

import threading

from shared.settings import ModelSettings
from tests.helpers.scripted_model import ScriptedModel
from worker.agent.model.model import ModelRequest
from worker.llm.catalogue import ModelCatalogue
from worker.llm.registry import LazyModel


class Making:
    """Counts."""

    def __init__(self) -> None:
        self.threads: list[str] = []

    def __call__(self) -> ScriptedModel:
        self.threads.append(threading.current_thread().name)
        return ScriptedModel(["one", "two"])


async def test_it_is_made_once_and_beside_the_event_loop() -> None:
    """By the first call, if nobody warmed it."""
    making = Making()
    model = LazyModel("openai/x", making, ModelCatalogue(ModelSettings()))
    assert (model.name, making.threads) == ("openai/x", [])
    assert (await model.chat(ModelRequest([{"role": "user", "content": "a"}]))).content == "one"
    await model.preload()
    assert (await model.chat(ModelRequest([{"role": "user", "content": "b"}]))).content == "two"
    [thread] = making.threads
    assert thread != threading.main_thread().name


async def test_one_that_was_never_needed_has_nothing_to_close() -> None:
    """Nor is it made for that."""
    making = Making()
    await LazyModel("openai/x", making, ModelCatalogue(ModelSettings())).close()
    assert making.threads == []
