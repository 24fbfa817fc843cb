"""AG-UI's own models of Python: every event of a stream is one of theirs, and what they send is taken."""

from __future__ import annotations

import json
import sys

from ag_ui.core import (  # type: ignore[import-not-found]
    Context,
    Event,
    RunAgentInput,
    TextPart,
    Tool,
    UserMessage,
)
from pydantic import TypeAdapter

EVENT = TypeAdapter(Event)


def known_fields(event: object) -> list[str]:
    """The names of fields that their model does not know, which it would keep."""
    return sorted(getattr(event, "model_extra", None) or {})


lines = sys.stdin.read().splitlines()
events = [EVENT.validate_json(line) for line in lines]
unknown = sorted({name for event in events for name in known_fields(event)})
asked = RunAgentInput(
    thread_id="from-python",
    run_id="r1",
    state={},
    messages=[UserMessage(id="u1", content=[TextPart(text="weather")])],
    tools=[Tool(name="get_weather", description="The weather.", parameters={"type": "object"})],
    context=[Context(description="Page", value="prices")],
    forwarded_props={},
)
bodies = [asked.model_dump_json(by_alias=True), asked.model_dump_json(by_alias=True, exclude_none=True)]
kinds = sorted({event.type.value for event in events})
print(json.dumps({"events": len(events), "kinds": kinds, "unknown": unknown, "bodies": bodies}))
