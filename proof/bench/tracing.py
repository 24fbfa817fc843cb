"""What traces cost: one span, and all that a message has in its gateway and its worker, without and with a collector.

The collector is a process of its own; the CPU time is that of ours, the thread that sends included.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psutil
from msgspec.structs import replace

from gateway.process.traces import delivery_span, receive_span, record_accepted
from proof.bench.plan import Plan
from proof.bench.table import Figure, Report
from shared.messages.codec import encode
from shared.messages.outbound import OutboundMessage
from shared.messages.transcript import UserEntry
from shared.settings.sections.processes import TracingSettings
from shared.store.turns.inbox import Accepted
from shared.store.turns.queue import Claim, TurnWork
from shared.tracing import continued, current_traceparent, fresh, is_on, process, span
from shared.tracing.spans import TURN
from tests.helpers.build import message
from tests.helpers.scripted_model import ScriptedModel, call, calls
from tests.helpers.turn_borders import MemoryJournal, RecordingProgress, RecordingTool
from worker.agent.loop import run_agent
from worker.agent.tools.toolbox import Toolbox
from worker.agent.turn import AgentRunSpec
from worker.llm.policies.traced import traced
from worker.turn.traces import agent_span, set_agent_result, set_outcome, turn_span

ROUNDS: Final = 10
SPANS: Final = 2000
MESSAGES: Final = 300
SENT_S: Final = 1.5
"""After which what waited was sent: fewer spans than the queue holds."""

SPANS_OF_A_MESSAGE: Final = 7
ROOT: Final = Path(__file__).parents[2]
SPEC: Final = AgentRunSpec(session="web:owner/a", entry=UserEntry(content="6*7", turn=1), system="be")
COLLECTOR: Final = (
    "import sys; from tests.helpers.otlp_server import collector\n"
    "with collector() as made:\n    print(made.address, flush=True); sys.stdin.read()"
)


def measure(plan: Plan) -> Report:
    """Without a collector, and with one."""
    rounds = plan.repeats(ROUNDS)
    figures = [_spans("a span, off", rounds), _messages("a message, off", rounds)]
    before = psutil.Process().memory_info().rss
    with _collecting() as address:
        process.start(TracingSettings(endpoint=address), process="worker")
        unsampled = fresh(sampled=False).traceparent
        with continued(unsampled):
            figures.append(_spans("a span, trace not chosen", rounds))
        figures += [_spans("a span, on", rounds), _messages("a message, on", rounds)]
        asyncio.run(process.stop())
    off, on = (next(one.median for one in figures if one.name == f"a message, {state}") for state in ("off", "on"))
    notes = (
        f"a message of {SPANS_OF_A_MESSAGE} spans: {on - off:+.0f} us of CPU, encoding and sending included",
        f"memory: {(psutil.Process().memory_info().rss - before) / 2**20:+.0f} MB, libraries and what was sent",
    )
    return Report(title="traces", figures=tuple(figures), notes=notes)


def _spans(name: str, rounds: int) -> Figure:
    """Time of one, in the thread that works."""
    values = []
    for _ in range(rounds):
        began = time.thread_time_ns()
        for _ in range(SPANS):
            with span(TURN) as now:
                if now.on:
                    now.set("shoal.turn", 1)
        values.append((time.thread_time_ns() - began) / SPANS)
        if is_on():
            time.sleep(SENT_S)
    return Figure(name, "ns", tuple(values))


def _messages(name: str, rounds: int) -> Figure:
    """CPU time of one message, all threads."""

    async def round_() -> float:
        began = time.process_time_ns()
        for _ in range(MESSAGES):
            await _message()
        if is_on():
            await asyncio.sleep(SENT_S)
        return (time.process_time_ns() - began) / MESSAGES / 1000

    asyncio.run(_message())
    return Figure(name, "us", tuple(asyncio.run(round_()) for _ in range(rounds)))


async def _message() -> None:
    """One message as gateway and worker treat it: two model calls, a tool, a delivery; nothing leaves the process."""
    with receive_span(message("6*7")) as (sent, now):
        record_accepted(now, Accepted(1, 0, 1, duplicate=False))
    work = TurnWork(1, encode(sent), 0, 0, 0, 1, 0, (), ())
    claim = Claim("turn:web:owner/a", "0" * 32, "1", 3, False, work)
    with continued(claim.traceparent), turn_span(claim, "turns") as now:
        model = traced(ScriptedModel([calls(call("calculate")), "42"]), asked="m", provider="openai")
        with agent_span("shoal", claim.session, "m") as agent:
            tools = Toolbox([RecordingTool("calculate")])
            spec = replace(SPEC, progress=RecordingProgress())
            set_agent_result(agent, await run_agent(spec, model, tools, MemoryJournal()))
        line = replace(OutboundMessage(content="42", turn=1), traceparent=current_traceparent())
        set_outcome(now, "done")
    with delivery_span(line, "web", claim.session):
        pass


@contextlib.contextmanager
def _collecting() -> Iterator[str]:
    """A collector in a process of its own; its address."""
    child = subprocess.Popen(
        [sys.executable, "-c", COLLECTOR], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdin is not None
    try:
        yield child.stdout.readline().strip()
    finally:
        child.stdin.close()
        child.stdout.close()
        child.wait(10)
