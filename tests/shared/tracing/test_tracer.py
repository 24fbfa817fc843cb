"""Spans: their parents, their ends, and what is left of them where nobody records them."""

from __future__ import annotations

import asyncio

import pytest

from shared.errors import BadInput, LeaseLost, ModelError, Refused, TryLater, TurnParked, TurnReleased, TurnStopped
from shared.tracing import continued, current, current_traceparent, fresh, is_on, span
from shared.tracing.spans import CHAT, EXECUTE_TOOL, FIRST, RECEIVE, TURN
from shared.tracing.tracer import NO_SPAN, TraceContext, active, parse
from tests.helpers.recorded import recording

SECRET = "canary-of-an-error"


def test_where_no_traces_are_sent_nothing_is_made() -> None:
    """The same object for everybody, which takes what it is told and keeps nothing."""
    assert not is_on()
    with span(TURN) as now:
        assert now is NO_SPAN
        assert not now.on
        now.set("shoal.turn", 1)
        now.event(FIRST)
        now.link(fresh().traceparent)
        now.fail("x")
        now.drop()
        assert current() is None
        assert active() is NO_SPAN


def test_where_no_traces_are_sent_the_trace_of_a_message_goes_on_all_the_same() -> None:
    """What is sent on carries the traceparent that came."""
    came = fresh(sampled=True).traceparent
    with continued(came) as trace:
        with span(TURN):
            assert current_traceparent() == came
        assert trace is not None
        assert trace.traceparent == came
    assert current_traceparent() is None


def test_the_first_span_begins_a_trace_and_others_are_below_it() -> None:
    """Name, kind, parents, times in order."""
    with recording() as kept:
        with span(RECEIVE) as first:
            assert active() is first
            with span(CHAT, "gpt") as below:
                assert current_traceparent() == kept_context(below).traceparent
            assert active() is first
        assert current() is None
    inner, outer = kept.spans
    assert (inner.name, inner.type.kind, outer.name, outer.type.kind) == ("chat gpt", "client", "receive", "producer")
    assert outer.parent is None
    assert inner.parent == outer.context
    assert not inner.remote
    assert inner.context.trace_id == outer.context.trace_id
    assert outer.started_ns <= inner.started_ns <= inner.ended_ns <= outer.ended_ns


def test_a_span_is_below_what_came_from_another_process() -> None:
    """The same trace, and a parent that is not ours."""
    came = fresh(sampled=True)
    with recording() as kept, continued(came.traceparent), span(TURN):
        pass
    [turn] = kept.spans
    assert (turn.parent, turn.remote, turn.context.trace_id) == (came, True, came.trace_id)


def test_what_another_process_does_not_record_is_not_recorded_here() -> None:
    """It decided for the whole trace; the ids go on."""
    came = fresh(sampled=False)
    with recording() as kept, continued(came.traceparent):
        with span(TURN) as now:
            assert not now.on
            assert current() == came
    assert kept.spans == []


def test_a_trace_that_is_not_chosen_is_not_recorded_in_part() -> None:
    """Those below its first span begin no traces of their own, and others are told so."""
    with recording(share=0.0) as kept:
        with span(RECEIVE) as first:
            result = parse(current_traceparent())
            assert result is not None
            assert not result.sampled
            assert not first.on
            with span(CHAT, "gpt") as below:
                assert not below.on
                assert current() == result
        assert current() is None
    assert kept.spans == []


@pytest.mark.parametrize("traceparent", [None, "", "nonsense", f"00-{'0' * 32}-{'0' * 16}-01"])
def test_a_traceparent_that_says_nothing_changes_nothing(traceparent: str | None) -> None:
    """The next span begins a trace."""
    with recording() as kept, continued(traceparent) as trace, span(TURN):
        assert trace is None
    assert kept.one("turn").parent is None


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (RuntimeError(SECRET), "RuntimeError"),
        (LeaseLost(SECRET), "LeaseLost"),
        (ModelError("rate_limit", SECRET, retryable=True), "rate_limit"),
        (BadInput("bad_chat", SECRET), "bad_chat"),
        (Refused("inbox_full", SECRET, 1.0), "inbox_full"),
    ],
)
def test_of_an_error_only_its_kind_is_reported(error: Exception, kind: str) -> None:
    """Its text may quote what a person wrote."""
    with recording() as kept, pytest.raises(type(error)), span(TURN):
        raise error
    [turn] = kept.spans
    assert (turn.error, turn.attributes) == (kind, {"error.type": kind})


@pytest.mark.parametrize(
    "end",
    [
        TurnStopped(SECRET),
        TurnReleased("drain"),
        TurnParked(SECRET),
        TryLater(SECRET, 1.0),
        asyncio.CancelledError(SECRET),
    ],
)
def test_an_end_that_somebody_wanted_is_no_error(end: BaseException) -> None:
    """A stop, a drain, a question to a person: told apart from what went wrong."""
    with recording() as kept, pytest.raises(type(end)), span(EXECUTE_TOOL, "exec"):
        raise end
    [tool] = kept.spans
    assert (tool.error, tool.attributes) == ("", {"shoal.ended_by": type(end).__name__})


def test_links_are_places_in_traces_and_each_is_reported_once() -> None:
    """Neither nonsense, nor what is its parent already."""
    came, other = fresh(sampled=True), fresh(sampled=True)
    with recording() as kept, continued(came.traceparent), span(TURN) as now:
        for traceparent in (other.traceparent, came.traceparent, other.traceparent, "nonsense", None):
            now.link(traceparent)
    assert kept.one("turn").links == [other]


def test_a_span_that_is_dropped_is_not_sent() -> None:
    """What was begun and then done by somebody else."""
    with recording() as kept, span(TURN) as now:
        now.drop()
    assert kept.spans == []


async def test_tasks_are_below_what_started_them_and_beside_each_other() -> None:
    """Tools that run at once are siblings."""

    async def tool(name: str) -> None:
        with span(EXECUTE_TOOL, name):
            await asyncio.sleep(0)

    with recording() as kept:
        with span(TURN):
            async with asyncio.TaskGroup() as group:
                for name in ("one", "two"):
                    group.create_task(tool(name))
    turn = kept.one("turn")
    assert [one.parent for one in kept.spans if one is not turn] == [turn.context, turn.context]


def kept_context(now: object) -> TraceContext:
    context = getattr(now, "context", None)
    assert isinstance(context, TraceContext)
    return context
