"""Tools and hooks of installed packages, in a worker."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from shared.errors import SettingsError, ToolFailed
from shared.settings.sections.agents import PluginSettings
from shared.store.client.redis_client import RedisClient
from shared.store.turns.inbox import Inbox
from tests.helpers.build import say
from tests.helpers.fleet import replies, workers
from tests.helpers.fleet_fixtures import Spawn, model, model_server, spawn
from tests.helpers.openai_server import Answer, Call, ScriptedOpenAI
from tests.helpers.plugins import EXAMPLE, Site
from tests.helpers.processes import ROOT
from tests.helpers.scripted_model import call
from tests.helpers.wait import eventually
from worker.agent.composite_hook import CompositeHook
from worker.agent.tools.schema import convert_arguments
from worker.agent.tools.tool import ToolContext
from worker.agent.tools.toolbox import Toolbox
from worker.tools.registry import TOOLS, plugin_hooks, plugin_tools

__all__ = ["model", "model_server", "spawn"]

ON = PluginSettings()
SESSION = "web:owner/a"

HEAD = """
import msgspec
from worker.agent.hook import AgentHook

class Arguments(msgspec.Struct):
    text: str = ""

class Tool:
    name, description, parameters, safety, timeout_s = "mine", "Mine.", Arguments, "read_only", 1.0

    async def run(self, arguments, context):
        return "fine"
"""


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLE)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(tmp_path / "site", monkeypatch)


def refused(of: Callable[[PluginSettings], object]) -> str:
    with pytest.raises(SettingsError) as problem:
        of(ON)
    assert "\n" not in str(problem.value)
    return str(problem.value)


@pytest.mark.usefixtures("example")
async def test_the_tool_of_the_docs_is_called_like_one_of_our_own() -> None:
    """In a toolbox, with its schema, its checks and its failures."""
    tools = plugin_tools(ON)
    assert [tool.name for tool in tools] == ["count_letters"]
    box = Toolbox(tools)
    [spec] = box.specs()
    assert set(spec.parameters["properties"]) == {"text", "letter"}
    context = ToolContext(session="s", turn=1, call_id="c")
    result = await box.call(call("count_letters", {"text": "Strawberry", "letter": "R"}), context)
    assert (result.content, result.ok) == ("'R' is there 3 times", True)
    wrong = await box.call(call("count_letters", {"text": "x", "letter": "7"}), context)
    assert (wrong.content, wrong.outcome) == ("Error: '7' is no letter; ask for one", "failed")
    with pytest.raises(ToolFailed):
        await tools[0].run(convert_arguments({"text": "x", "letter": "7"}, tools[0].parameters), context)


@pytest.mark.usefixtures("example")
async def test_the_hook_of_the_docs_is_isolated_like_one_of_our_own() -> None:
    """It changes the final text."""
    hooks = plugin_hooks(ON)
    assert [type(hook).__name__ for hook in hooks] == ["Signed"]
    assert await CompositeHook(hooks).finalize_content("Hello.") == "Hello.\n\nYours, Shoal"


async def test_a_hook_that_breaks_is_passed_over(site: Site) -> None:
    """Whoever wrote it: a turn does not end by it."""
    site.install(
        "hooks-two",
        "from worker.agent.hook import AgentHook\n"
        "class Breaks(AgentHook):\n    async def finalize_content(self, text):\n        raise RuntimeError\n"
        "class Shouts(AgentHook):\n    async def finalize_content(self, text):\n        return text.upper()\n",
        hooks="a_breaks=Breaks b_shouts=Shouts",
    )
    reported: list[str] = []
    hook = CompositeHook(plugin_hooks(ON), report=lambda where, error: reported.append(where))
    assert await hook.finalize_content("hello") == "HELLO"
    assert reported == ["hook Breaks.finalize_content"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("Tool.name = 'other'", "calls itself 'other'"),
        ("Tool.description = ' '", "has no description"),
        ("Tool.safety = 'safe'", "has the safety 'safe'; it is one of read_only, idempotent, unsafe"),
        ("Tool.timeout_s = 0", "has timeout_s 0"),
        ("Tool.timeout_s = float('nan')", "has timeout_s nan"),
        ("Tool.parameters = dict", "not a msgspec.Struct"),
        ("Tool.parameters = msgspec.defstruct('A', [('x', complex)])", "no schema can be written"),
        ("Tool.run = lambda self, arguments, context: 'now'", "has no `async def run(arguments, context)`"),
        ("del Tool.safety", "has no 'safety'"),
        ("Tool = dict", "has no 'name'"),
    ],
)
def test_a_tool_that_no_model_could_be_offered_stops_the_start(site: Site, change: str, expected: str) -> None:
    """All that is wrong is found before the first turn."""
    site.install("tool-broken", f"{HEAD}\n{change}\n", tools="mine=Tool")
    text = refused(plugin_tools)
    assert text.startswith("the tool 'mine' of the package 'tool-broken 1.0' ")
    assert expected in text


@pytest.mark.parametrize("name", ["two.words", "x" * 65])
def test_a_tool_whose_name_cannot_be_called_stops_the_start(site: Site, name: str) -> None:
    """Providers take letters, digits, dashes and underscores."""
    site.install("tool-broken", HEAD, tools=f"{name}=Tool")
    assert "has a name that a model cannot call" in refused(plugin_tools)


@pytest.mark.parametrize("name", sorted(TOOLS)[:3])
def test_a_tool_named_like_a_built_in_one_stops_the_start(site: Site, name: str) -> None:
    """A package cannot stand in for one of ours."""
    site.install("tool-broken", HEAD, tools=f"{name}=Tool")
    assert "has the name of a built-in one" in refused(plugin_tools)


def test_a_hook_that_is_none_stops_the_start(site: Site) -> None:
    """A tool under the wrong group, for example."""
    site.install("hook-broken", HEAD, hooks="mine=Tool")
    assert "'mine' of the package 'hook-broken 1.0' is a Tool; its entry point must make an AgentHook" in refused(
        plugin_hooks
    )


def test_an_installed_package_is_found_by_a_process_of_its_own() -> None:
    """Really by its metadata on the path: nothing here imported it."""
    script = (
        "from shared.settings import PluginSettings as P; from worker.tools.registry import *; "
        "print([t.name for t in plugin_tools(P())], [type(h).__name__ for h in plugin_hooks(P())], "
        "plugin_tools(P(off=('count_letters',))))"
    )
    environment = {**os.environ, "PYTHONPATH": str(EXAMPLE)}
    process = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert process.stdout.splitlines()[-1] == "['count_letters'] ['Signed'] ()"


async def test_a_worker_answers_with_the_tool_and_the_hook_of_a_package(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real process, a model that asks for the tool, and an answer that the hook has signed."""
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLE))
    model.script(
        Answer(calls=[Call("count_letters", '{"text": "strawberry", "letter": "r"}')]),
        Answer(role="tool", text="Three."),
    )
    worker = spawn("worker", MODEL__CLIENT="direct")
    await workers(client, 1)
    await say(Inbox(client), "How many r are in strawberry?")
    await eventually(lambda: replies(client, SESSION), within_s=60)
    assert await replies(client, SESSION) == ["Three.\n\nYours, Shoal"]
    assert '"count_letters (shoal-letters 1.0)"' in worker.log
    assert '"signed (shoal-letters 1.0)"' in worker.log


async def test_a_worker_with_a_broken_package_ends_with_one_line(
    spawn: Spawn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes no turn that it would run without what the operator expects."""
    Site(tmp_path / "site", monkeypatch).install("tool-broken", "raise RuntimeError('no')", tools="mine=Tool")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    worker = spawn("worker", MODEL__CLIENT="direct")
    await eventually(lambda: not worker.alive, within_s=60, what="the end of the worker")
    assert worker.wait() == 2
    assert "the tool 'mine' of the package 'tool-broken 1.0' cannot be made: RuntimeError: no" in worker.log
    assert "Traceback" not in worker.log
