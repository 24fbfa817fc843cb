"""LiteLLM's record of a call, without its work after the call."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Mapping
from typing import Any

from litellm.litellm_core_utils.litellm_logging import Logging


class Unlogged(Logging):
    """LiteLLM's record of a running call, with all work after the call removed. By default LiteLLM
    prices each call, builds a record of it and hands that to callbacks, which is nearly half of the
    cost of a call. We set no callbacks, and have our own prices and spans. Its caller must also do
    the work that LiteLLM does where it makes one: `without_signatures`."""

    def __init__(self, request: Mapping[str, Any]) -> None:
        super().__init__(
            model=request["model"],
            messages=request["messages"],
            stream=request.get("stream", False),
            call_type="acompletion",
            start_time=datetime.datetime.now(),  # noqa: DTZ005  LiteLLM has such ones everywhere, and subtracts them
            litellm_call_id=str(uuid.uuid4()),
            function_id="",
        )
        self.stream_options = request.get("stream_options")

    def response_cost_calculator(self, *_: Any, **__: Any) -> None:
        return None

    def claim_async_success_log(self) -> bool:
        return False

    async def dispatch_success_handlers(self, *_: Any, **__: Any) -> None:
        pass

    async def async_failure_handler(self, *_: Any, **__: Any) -> None:
        pass
