"""W3C trace context as text: whatever comes, what goes on is valid, or nothing."""

from __future__ import annotations

import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.messages.codec import encode, traceparent_of
from shared.messages.subagent import SubagentTask
from shared.tracing import fresh
from shared.tracing.tracer import TraceContext, chosen, parse
from tests.helpers.build import message

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
VALID = re.compile(r"00-[0-9a-f]{32}-[0-9a-f]{16}-0[01]")

hexes = st.text("0123456789abcdef", min_size=1)
ids = st.tuples(
    st.integers(1, 2**128 - 1).map(lambda n: f"{n:032x}"), st.integers(1, 2**64 - 1).map(lambda n: f"{n:016x}")
)


@pytest.mark.parametrize(
    ("header", "sampled"),
    [
        (f"00-{TRACE}-{SPAN}-01", True),
        (f"00-{TRACE}-{SPAN}-00", False),
        (f"00-{TRACE}-{SPAN}-ff", True),
        (f"00-{TRACE}-{SPAN}-02", False),
        (f"cc-{TRACE}-{SPAN}-01", True),
        (f"cc-{TRACE}-{SPAN}-01-what-the-future-brings", True),
    ],
)
def test_a_header_is_read_also_one_of_a_later_version(header: str, sampled: bool) -> None:
    """As the standard says; what goes on is of version 00."""
    assert parse(header) == TraceContext(TRACE, SPAN, sampled)
    assert TraceContext(TRACE, SPAN, sampled).traceparent == f"00-{TRACE}-{SPAN}-{'01' if sampled else '00'}"


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "-",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}-01-",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}-011",
        f"ff-{TRACE}-{SPAN}-01",
        f"0-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE[:-1]}g-{SPAN}-01",
        f"00-{TRACE}{SPAN}-01",
        f" 00-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01\n",
        f"cc-{TRACE}-{SPAN}-01.more",
        f"00-{TRACE}-{SPAN}-٠١",
        "x" * 1_000_000,
    ],
)
def test_what_the_standard_does_not_allow_says_nothing(header: str | None) -> None:
    """Then the trace begins anew."""
    assert parse(header) is None


@given(st.text() | st.text("0123456789abcdef-", max_size=80) | st.from_regex(VALID))
def test_whatever_comes_what_goes_on_is_valid(header: str) -> None:
    """A header is somebody else's text until it was read."""
    found = parse(header)
    if found is not None:
        assert VALID.fullmatch(found.traceparent)
        assert parse(found.traceparent) == found


@given(ids, st.booleans())
def test_what_is_written_is_read(both: tuple[str, str], sampled: bool) -> None:
    """The way there and back."""
    context = TraceContext(*both, sampled)
    assert parse(context.traceparent) == context


@given(ids, st.sampled_from(string.printable), st.integers(0, 54))
def test_one_wrong_character_is_noticed_or_harmless(both: tuple[str, str], char: str, at: int) -> None:
    """Nothing in between: either it says nothing, or it is a header as good as any."""
    text = TraceContext(*both, sampled=True).traceparent
    found = parse(text[:at] + char + text[at + 1 :])
    assert found is None or VALID.fullmatch(found.traceparent)


def test_a_new_trace_has_ids_of_its_own() -> None:
    """Valid ones, and never twice."""
    many = [fresh(sampled=True) for _ in range(1000)]
    assert all(parse(one.traceparent) == one for one in many)
    assert len({one.trace_id for one in many}) == len({one.span_id for one in many}) == 1000


def test_a_share_of_traces_is_chosen_by_their_ids() -> None:
    """So that everybody who is asked says the same; none of them, or all, when that is wanted."""
    many = [fresh().trace_id for _ in range(4000)]
    assert not any(chosen(one, 0.0) for one in many)
    assert all(chosen(one, 1.0) for one in many)
    assert 0.2 < sum(chosen(one, 0.25) for one in many) / len(many) < 0.3
    assert [chosen(one, 0.25) for one in many] == [chosen(one, 0.25) for one in many]
    assert chosen("f" * 18 + "0" * 14, 0.001), "only the random part of an id counts"


def test_the_trace_of_a_record_is_read_without_the_record() -> None:
    """Of a message and of a subagent's task."""
    task = SubagentTask(id="a", session="web:a/b", turn=1, call_id="c", task="dig", label="dig", traceparent="t1")
    assert traceparent_of(encode(task)) == "t1"
    assert traceparent_of(encode(message())) is None


@given(st.binary(max_size=200))
def test_bytes_that_are_no_record_have_no_trace(data: bytes) -> None:
    """Whoever reads the record says what is wrong with it."""
    found = traceparent_of(data)
    assert found is None or isinstance(found, str)


@pytest.mark.parametrize("data", [b"", b"\x91" * 10_000 + b"\xc0", b"\x81\xabtraceparent\x05", b"\xc1"])
def test_broken_records_have_no_trace(data: bytes) -> None:
    """Too deep, of another kind, nothing at all."""
    assert traceparent_of(data) is None
