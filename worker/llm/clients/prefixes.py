"""Whether one model goes on by itself with a reply that was cut off."""

from __future__ import annotations

from shared.errors import ModelError
from shared.log import logger
from worker.agent.model.ask import GOES_ON
from worker.agent.model.model import ModelRequest
from worker.llm.provider_spec import Prefix

log = logger("models")


class Prefixes:
    """How `model` is asked to go on with a reply, until it refuses that."""

    def __init__(self, model: str, prefix: Prefix | None) -> None:
        self._model = model
        self._prefix = prefix

    def of(self, request: ModelRequest) -> Prefix | None:
        """Return how to ask for the rest of a reply; None if the request asks for none, or has to do
        it in words."""
        return self._prefix if request.messages and request.messages[-1].get(GOES_ON) else None

    def refused(self, prefix: Prefix | None, fault: ModelError) -> bool:
        """Return whether a fault may be the refusal of a prefix. No later request has one."""
        if prefix is None or fault.kind != "bad_request":
            return False
        self._prefix = None
        log.warning("the model goes on with no reply by itself: asked in words from now on", model=self._model)
        return True
