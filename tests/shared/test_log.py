from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from shared.ids import log_id
from shared.log import bind_work, configure, logger, redact
from shared.redaction import Redactor
from shared.settings import LogSettings

log = logger("part")  # made before configure(), as in every module


class Terminal(io.StringIO):
    """A stream that a person watches."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level, ours = root.handlers[:], root.level, structlog.get_config()
    yield
    root.handlers[:], root.level = handlers, level
    structlog.configure(**ours)


def lines(
    write: Callable[[], object], *, stream: io.StringIO | None = None, level: Literal["debug", "info"] = "info"
) -> list[dict[str, Any]]:
    """What `write` logs, as the JSON records of a container."""
    out = stream or io.StringIO()
    configure(LogSettings(level=level), process="worker", stream=out)
    write()
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_off_a_terminal_each_line_is_one_json_object() -> None:
    """A container's log is read by machines: time in UTC, level, part, process, event, fields."""
    (line,) = lines(lambda: log.info("lease lost", queue="turns", held_s=1.5))
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "lease lost",
        "level": "info",
        "logger": "part",
        "process": "worker",
        "queue": "turns",
        "held_s": 1.5,
    }


def test_a_line_that_cannot_be_written_is_lost_and_nothing_else() -> None:
    """A full disk or a pipe that nobody reads ends no turn; the lines after it are written again."""

    class Full(io.StringIO):
        room = False

        def write(self, text: str) -> int:
            if not self.room:
                raise OSError(28, "No space left on device")
            return super().write(text)

    out = Full()
    configure(LogSettings(format="json"), process="worker", stream=out)
    log.info("lost")
    out.room = True
    log.info("kept")
    assert [json.loads(line)["event"] for line in out.getvalue().splitlines()] == ["kept"]
    out.close()
    log.info("nobody listens")


def test_a_line_is_plain_characters_whatever_its_values() -> None:
    """Whoever looks at a log in a terminal gets no escape codes from outside, and no line of a sender's own."""
    out = io.StringIO()
    configure(LogSettings(format="json"), process="worker", stream=out)
    message = {"name": "x\ny \x9b31m \ud800 é", "size": 2**80, "ratio": float("inf"), "path": Path("/x"), "none": None}
    log.warning("new chat", **message)
    (line,) = out.getvalue().splitlines()
    assert line.isascii()
    assert {**message, "path": "/x"}.items() <= json.loads(line).items()


def test_on_a_terminal_lines_are_readable_and_coloured() -> None:
    """A person sees the event first, without braces."""
    out = Terminal()
    configure(LogSettings(), process="worker", stream=out)
    log.warning("lease lost", queue="turns")
    assert "\x1b[" in out.getvalue()
    assert "{" not in out.getvalue()


@pytest.mark.parametrize(
    ("settings", "starts", "coloured"),
    [
        (LogSettings(format="json"), "{", False),
        (LogSettings(format="console", colour="never"), "", False),
        (LogSettings(format="console", colour="always"), "", True),
    ],
)
def test_format_and_colour_can_be_forced(settings: LogSettings, starts: str, coloured: bool) -> None:
    """What the settings say wins over what the stream is."""
    for out in (Terminal(), io.StringIO()):
        configure(settings, process="worker", stream=out)
        log.info("some event")
        assert out.getvalue().startswith(starts)
        assert ("\x1b[" in out.getvalue()) is coloured


def test_lines_under_the_level_are_dropped() -> None:
    """Of ours and of the libraries'."""

    def write() -> None:
        log.debug("too quiet")
        logging.getLogger("some.library").debug("too quiet")

    assert lines(write) == []
    assert len(lines(write, level="debug")) == 2


def test_lines_of_libraries_go_the_same_way() -> None:
    """One pipe, one shape, one redaction."""
    (line,) = lines(lambda: logging.getLogger("some.library").warning("lost %s", "redis://u:hunter22@h"))
    assert line["event"] == "lost redis://u:***@h"
    assert (line["logger"], line["level"], line["process"]) == ("some.library", "warning", "worker")


def test_libraries_that_repeat_us_are_logged_only_when_something_is_wrong() -> None:
    """arq's lines at info hold the arguments of jobs, which can be a person's words."""

    def write() -> None:
        for name in ("arq.worker", "uvicorn.error", "httpx"):
            logging.getLogger(name).info("chatter")
            logging.getLogger(name).warning("trouble")

    assert [line["event"] for line in lines(write)] == ["trouble"] * 3


async def test_fields_of_the_work_are_on_every_line_inside_and_on_none_outside() -> None:
    """Also in tasks started inside, and never in a neighbour's."""
    out = io.StringIO()
    configure(LogSettings(), process="worker", stream=out)
    inside, go_on = asyncio.Event(), asyncio.Event()

    async def turn(session: str) -> None:
        with bind_work(session=session, turn=3, worker="w1", attempt=2):
            inside.set()
            await go_on.wait()
            await asyncio.create_task(deeper())
        log.info("outside")

    async def deeper() -> None:
        log.info("inside")

    work = asyncio.create_task(turn("web:alice/1"))
    await inside.wait()
    log.info("neighbour")
    go_on.set()
    await work
    neighbour, deep, after = (json.loads(line) for line in out.getvalue().splitlines())
    bound = {"session": log_id("web:alice/1"), "turn": 3, "channel": "web", "worker": "w1", "attempt": 2}
    assert bound.items() <= deep.items()
    assert not bound.keys() & neighbour.keys()
    assert not bound.keys() & after.keys()
    assert "alice" not in out.getvalue()


@pytest.mark.parametrize("console", [False, True])
def test_a_traceback_shows_no_local_variables(console: bool) -> None:
    """What people wrote is in local variables everywhere; a traceback names places, not values."""
    out = io.StringIO()
    configure(LogSettings(format="console" if console else "json"), process="worker", stream=out)
    message = "the message " + "of a person"
    try:
        raise KeyError(len(message))
    except KeyError:
        log.exception("it broke")
    assert "Traceback" in out.getvalue()
    assert "message of a person" not in out.getvalue()


SECRET = 'wal"rus\\7 é/4'


@pytest.mark.parametrize("console", [False, True])
def test_a_secret_that_was_named_is_nowhere_in_the_log(console: bool) -> None:
    """Event, field, nested value, key of a table, object, exception, library line: each is a way out."""
    redact(SECRET)

    class Holder:
        def __repr__(self) -> str:
            return f"<holds {SECRET}>"

    out = io.StringIO()
    configure(LogSettings(format="console" if console else "json"), process="worker", stream=out)
    log.info("event " + SECRET, field=SECRET, deep={"a": [SECRET, (SECRET,)]}, it=Holder(), raw=SECRET.encode())
    try:
        raise ValueError(f"in an error {SECRET}")
    except ValueError:
        log.exception("it broke", where=SECRET)
        logging.getLogger("some.library").exception("broke %s", SECRET)
    text = out.getvalue()
    assert text.count("***") >= 8
    assert "rus" not in text.replace("SECRET", "")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Authorization: Bearer abc.def-123", "Authorization: Bearer ***"),
        ("key sk-ant-api03-abcdefgh is wrong", "key *** is wrong"),
        ("redis://:p4ss@host:6379/0 away", "redis://:***@host:6379/0 away"),
        ("rediss://user:p4ss@host", "rediss://user:***@host"),
        (
            "https://api.telegram.org/bot123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw1/get",
            "https://api.telegram.org/bot***/get",
        ),
        ("xoxb-1234567890-abc", "***"),
        ("GET /x?api_key=abcdef&y=1", "GET /x?api_key=***&y=1"),
        ('{"password": "hunter22"}', '{"password": "***"}'),
        ("eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.SflKxwRJSMeKKF2", "***"),
        ("turn 3 took 1.5 s at 12:30:00 for 123456", "turn 3 took 1.5 s at 12:30:00 for 123456"),
        ("model anthropic/claude token count 3000", "model anthropic/claude token count 3000"),
    ],
)
def test_what_looks_like_a_secret_is_masked_without_being_named(text: str, shown: str) -> None:
    """Ordinary words and numbers stay."""
    assert Redactor()(text) == shown


@given(st.lists(st.text(min_size=4, max_size=30), min_size=1, max_size=5))
def test_a_named_secret_is_masked_whatever_its_characters(secrets: list[str]) -> None:
    """Also when one secret is part of another, and where a log writer has escaped it."""
    redactor = Redactor()
    for secret in secrets:
        redactor.add(secret)
    for secret in secrets:
        for written in (secret, quote(secret, safe=""), json.dumps(secret)[1:-1], repr(secret)[1:-1]):
            assert redactor(written) == "***"


def test_a_short_secret_would_mask_the_whole_log_and_is_left_alone() -> None:
    """`web.token = "a"` must not turn every a into stars."""
    redactor = Redactor()
    redactor.add("a")
    redactor.add("")
    assert redactor("a banana") == "a banana"


def test_fields_with_the_name_of_a_secret_are_masked_whatever_they_hold() -> None:
    """A field called token is a slip, not news."""
    (line,) = lines(lambda: log.info("slip", token="abc", headers={"Authorization": "x", "Host": "h"}))
    assert line["token"] == "***"
    assert line["headers"] == {"Authorization": "***", "Host": "h"}


def test_nobody_outside_writes_lines_or_colours_onto_a_terminal() -> None:
    """A chat name with a line break and an escape code stays one line of plain characters."""
    out = io.StringIO()
    configure(LogSettings(format="console"), process="worker", stream=out)
    log.info("new chat", name="x\n12:00:00 [error] all is lost \x1b[31mred\x9b31m")
    assert out.getvalue().count("\n") == 1
    assert "\x1b" not in out.getvalue()
    assert "\x9b" not in out.getvalue()
