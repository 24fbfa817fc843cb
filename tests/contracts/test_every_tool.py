"""One suite for every Tool that an agent can be offered: what the loop and the providers rely on."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from openai.types.chat import ChatCompletionFunctionToolParam
from pydantic import TypeAdapter

from shared.settings import Settings
from shared.settings.sections.agents import PluginSettings
from shared.store.client.redis_client import RedisClient
from shared.store.sessions.memory import MemoryStore
from tests.contracts.offered import FILES, GOOD, OFFERED, QUICK, Offered
from tests.helpers.text_files import TextFiles
from worker.agent.model.model import ToolCallRequest
from worker.agent.ports import NULL_PORTS
from worker.agent.tools.schema import names_of
from worker.agent.tools.tool import Safety, Tool, ToolOutcome
from worker.agent.tools.toolbox import Toolbox
from worker.sandbox.command import Finished, Limiter, SandboxCommand
from worker.tools.registry import TOOLS
from worker.turn.turn_agent import NOT_FOR_SUBAGENTS, TurnAgent, subagent_tools

AT_ONCE = 8
"""More than may read pages at once; each page costs a third of a second of a core."""

HARMLESS = sorted(name for name, (safety, _) in GOOD.items() if safety != "unsafe")
SCALAR = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=40)
ANY_JSON = st.recursive(SCALAR, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner))
JUNK: list[Any] = [None, True, -1, 10**30, 1.5, "", "x" * 10_000, "\x00", [], [[]], {}, {"a": {}}]
_PARAM = TypeAdapter[Any](ChatCompletionFunctionToolParam)

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(params=list(OFFERED))
async def offered(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Offered]:
    async with OFFERED[request.param](tmp_path) as made:
        yield made


def request_of(tool: Tool, arguments: dict[str, Any]) -> ToolCallRequest:
    return ToolCallRequest("c1", tool.name, arguments, msgspec.json.encode(arguments, enc_hook=str).decode("utf-8"))


async def called(offered: Offered, arguments: dict[str, Any], **more: Any) -> ToolOutcome:
    """Through the box, as the loop calls it."""
    request = ToolCallRequest("c1", offered.tool.name, arguments, "")
    return await Toolbox([offered.tool]).call(request, offered.context(**more))


async def test_it_says_what_it_is(offered: Offered) -> None:
    """A name that every provider takes, a description, a class, a time."""
    tool = offered.tool
    assert re.fullmatch(r"[a-z][a-z0-9_]{0,63}", tool.name)
    assert 20 <= len(tool.description) <= 500
    assert tool.safety in get_args(Safety)
    assert tool.safety == offered.safety, "its class decides what a resumed turn does"
    assert 0 < tool.timeout_s <= 900


async def test_its_schema_is_one_that_providers_take(offered: Offered) -> None:
    """Valid as a JSON Schema and for OpenAI's own types; one object without references."""
    [spec] = Toolbox([offered.tool]).specs()
    Draft202012Validator.check_schema(spec.parameters)
    offer = {"name": spec.name, "description": spec.description, "parameters": spec.parameters}
    param = {"type": "function", "function": offer}
    assert _PARAM.validate_python(param) == param
    assert spec.parameters["type"] == "object"
    assert "$ref" not in msgspec.json.encode(spec).decode()
    assert Draft202012Validator(spec.parameters).is_valid(offered.good)


async def test_every_parameter_of_ours_is_described(offered: Offered) -> None:
    """The description is all that a model knows; unknown parameters are refused."""
    [spec] = Toolbox([offered.tool]).specs()
    if not offered.ours:
        return
    assert spec.parameters["additionalProperties"] is False
    for name, field in spec.parameters["properties"].items():
        assert field.get("description"), f"the parameter {name!r} of {offered.tool.name!r} has no description"


async def test_it_works(offered: Offered) -> None:
    """Good arguments give text."""
    outcome = await called(offered, offered.good)
    assert outcome.ok, outcome.content
    assert outcome.content


async def test_an_unknown_parameter_of_ours_is_named(offered: Offered) -> None:
    """A model that invents one learns what there is."""
    outcome = await called(offered, offered.good | {"colour": "red"})
    if offered.ours:
        assert outcome.outcome == "bad_arguments"
        assert "colour" in outcome.content


async def test_what_is_missing_or_of_another_kind_is_named(offered: Offered) -> None:
    """The model reads which parameter it was, which there are, and what to do; nothing has run."""
    tool = offered.tool
    [spec] = Toolbox([tool]).specs()
    for name in spec.parameters.get("required", ()):
        missing = await called(offered, {key: value for key, value in offered.good.items() if key != name})
        wrong = await called(offered, offered.good | {name: {"un": "fit"}})
        for outcome in (missing, wrong):
            assert outcome.outcome == "bad_arguments"
            assert name in outcome.content
            assert "Correct them and call it again." in outcome.content
            assert all(field in outcome.content for field in names_of(tool.parameters))
    whole = await Toolbox([tool]).call(ToolCallRequest("c1", tool.name, None, '{"a": '), offered.context())
    assert (whole.outcome, '{"a": ' in whole.content) == ("bad_arguments", True)


async def test_wrong_kinds_never_raise(offered: Offered) -> None:
    """Whatever stands in a parameter, the answer is a result or an error that begins with `Error: `."""
    for name in names_of(offered.tool.parameters):
        for value in JUNK:
            check(await called(offered, offered.good | {name: value}))


@pytest.mark.parametrize("offered", QUICK, indirect=True)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
async def test_no_arguments_at_all_make_it_raise(offered: Offered, data: st.DataObject) -> None:
    """Any JSON in any parameter, in any combination."""
    names = sorted(names_of(offered.tool.parameters))
    arguments = data.draw(st.fixed_dictionaries({}, optional=dict.fromkeys(names, ANY_JSON)))
    check(await called(offered, {**(offered.good if data.draw(st.booleans()) else {}), **arguments}))


def check(outcome: ToolOutcome) -> None:
    assert outcome.ok or outcome.content.startswith("Error: ")
    assert outcome.outcome in ("ok", "failed", "bad_arguments"), outcome
    outcome.content.encode()


async def test_one_tool_serves_many_turns_at_once(offered: Offered) -> None:
    """It keeps nothing of a call."""
    outcomes = await asyncio.gather(*(called(offered, offered.good) for _ in range(AT_ONCE)))
    assert [outcome.content for outcome in outcomes if not outcome.ok] == []


async def test_without_anything_around_it_it_works_or_says_why(offered: Offered) -> None:
    """An agent without files, effects and plans gets an error that it can read."""
    request = request_of(offered.tool, offered.good)
    context = msgspec.structs.replace(Offered.context(offered), files=NULL_PORTS)
    for bare in (context, type(context)(session=context.session, turn=1, call_id="c1")):
        outcome = await Toolbox([offered.tool]).call(request, bare)
        assert outcome.ok or outcome.outcome == "failed"
        assert outcome.content


@pytest.mark.parametrize("offered", HARMLESS, indirect=True)
async def test_a_second_call_changes_nothing_more(offered: Offered) -> None:
    """A turn that goes on elsewhere calls an unfinished tool again: the files are the same as after one call."""
    once, twice = TextFiles(FILES), TextFiles(FILES)
    for files, times in ((once, 1), (twice, 2)):
        for _ in range(times):
            assert (await called(offered, offered.good, files=files)).ok
    assert twice.texts == once.texts
    assert offered.safety == "idempotent" or once.texts == FILES


class AnySandbox:
    """A sandbox that runs nothing."""

    tier = "none"
    limited_by: Limiter = "census"

    async def run(self, command: SandboxCommand) -> Finished:
        return Finished(ended="exit", code=0)

    async def close(self) -> None:
        pass


async def test_no_tool_is_offered_that_this_suite_does_not_know(client: RedisClient) -> None:
    """With everything on that can be on. A new tool gets a line in OFFERED; its rights are decided there, too."""
    answerer = TurnAgent(
        Settings(plugins=PluginSettings(off=("letters", "signed", "count_letters"))), client, MemoryStore(client)
    )
    answerer.offer_exec(AnySandbox())
    box = await answerer._toolboxes.current()
    names = {spec.name for spec in box.specs()}
    await answerer.close()
    known = {name.partition(",")[0] for name in OFFERED if not name.startswith("a tool of")}
    assert names == known
    assert set(GOOD) == set(TOOLS)
    assert {name for name in names if name not in NOT_FOR_SUBAGENTS} == {
        tool.name for tool in subagent_tools(box._tools.values())
    }
