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
from typing import Final, NamedTuple

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

QUICK: Final = (200, 30, 0.0)
"""The same three for a quick look: the queue holds all of them."""

SPANS_OF_A_MESSAGE: Final = 7
ROOT: Final = Path(__file__).parents[2]
SPEC: Final = AgentRunSpec(session="web:owner/a", entry=UserEntry(content="6*7", turn=1), system="be")
COLLECTOR: Final = (
    "import sys; from tests.helpers.otlp_server import collector\n"
    "with collector() as made:\n    print(made.address, flush=True); sys.stdin.read()"
)


class Size(NamedTuple):
    """How much is measured, and how long after it all that waited was sent."""

    rounds: int
    spans: int
    messages: int
    sent_s: float


def measure(plan: Plan) -> Report:
    """Without a collector, and with one."""
    size = Size(plan.repeats(ROUNDS), *plan.of((SPANS, MESSAGES, SENT_S), QUICK))
    figures = [_spans("a span, off", size), _messages("a message, off", size)]
    before = psutil.Process().memory_info().rss
    with _collecting() as address:
        process.start(TracingSettings(endpoint=address), process="worker")
        unsampled = fresh(sampled=False).traceparent
        with continued(unsampled):
            figures.append(_spans("a span, trace not chosen", size))
        figures += [_spans("a span, on", size), _messages("a message, on", size)]
        asyncio.run(process.stop())
    off, on = (next(one.median for one in figures if one.name == f"a message, {state}") for state in ("off", "on"))
    notes = (
        f"a message of {SPANS_OF_A_MESSAGE} spans: {on - off:+.0f} us of CPU, encoding and sending included",
        f"memory: {(psutil.Process().memory_info().rss - before) / 2**20:+.0f} MB, libraries and what was sent",
    )
    return Report(title="traces", figures=tuple(figures), notes=notes)


def _spans(name: str, size: Size) -> Figure:
    """Time of one, in the thread that works."""
    values = []
    for _ in range(size.rounds):
        began = time.thread_time_ns()
        for _ in range(size.spans):
            with span(TURN) as now:
                if now.on:
                    now.set("shoal.turn", 1)
        values.append((time.thread_time_ns() - began) / size.spans)
        if is_on():
            time.sleep(size.sent_s)
    return Figure(name, "ns", tuple(values))


def _messages(name: str, size: Size) -> Figure:
    """CPU time of one message, all threads."""

    async def round_() -> float:
        began = time.process_time_ns()
        for _ in range(size.messages):
            await _message()
        if is_on():
            await asyncio.sleep(size.sent_s)
        return (time.process_time_ns() - began) / size.messages / 1000

    asyncio.run(_message())
    return Figure(name, "us", tuple(asyncio.run(round_()) for _ in range(size.rounds)))


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
