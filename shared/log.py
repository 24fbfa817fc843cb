"""The log: events of two or three words, values as fields, secrets masked. Lines of libraries are
formatted like ours. JSON by default, readable text on a terminal. Message text and chat ids are
never logged; a session appears as a hash."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping, MutableMapping
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, NamedTuple, TextIO

from shared.ids import log_id, split_session
from shared.redaction import MASK, redact, redacted
from shared.settings.sections.processes import LogSettings

# structlog imports rich, if installed, for tracebacks with local variables. We never let it write
# those, and rich would be a sixth of what a process imports. A module that is None in sys.modules
# cannot be imported.
_rich = sys.modules.setdefault("rich", None)  # type: ignore[arg-type]
import structlog  # noqa: E402

if _rich is None:
    del sys.modules["rich"]

__all__ = ["Logger", "add_work", "bind_work", "configure", "logger", "redact"]

Logger = structlog.typing.FilteringBoundLogger

# At info they repeat ours, and arq logs the arguments of jobs.
_QUIET: Final = "arq asyncio httpcore httpx LiteLLM openai urllib3 uvicorn websockets".split()
_SECRET_FIELDS: Final = {"api_key", "authorization", "cookie", "password", "secret", "token"}
_CONTROLS: Final = (*range(32), 127, *range(128, 160))
_UNSEEN: Final = {code: f"\\x{code:02x}" for code in _CONTROLS} | {10: "\\n", 9: "\t"}


def logger(name: str) -> Logger:
    """Return the logger of one part, e.g. `leases`. Call it as `log.info("lease lost",
    queue=x)`."""
    made: Logger = structlog.get_logger(name)
    return made


class Work(NamedTuple):
    """The work of a task. The session becomes a hash only in a line that is written."""

    session: str | None = None
    turn: int | None = None
    worker: str | None = None
    attempt: int | None = None
    trace_id: str | None = None


_work: Final[ContextVar[Work | None]] = ContextVar("work", default=None)


class bind_work:  # noqa: N801 (it reads as a verb)
    """Add a Work and its channel to lines of this task, and tasks that it starts, in the block."""

    __slots__ = ("_token", "_work")

    def __init__(self, *values: Any, **fields: Any) -> None:
        self._work = Work(*values, **fields)

    def __enter__(self) -> None:
        outer = _work.get()
        work = self._work
        if outer is not None:
            work = outer._replace(**{name: value for name, value in work._asdict().items() if value is not None})
        self._token = _work.set(work)

    def __exit__(self, *_: object) -> None:
        _work.reset(self._token)


def add_work(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Processor that adds the fields of `bind_work` to a line."""
    work = _work.get()
    if work is None:
        return event
    for name, value in zip(Work._fields, work, strict=True):
        if value is not None:
            event.setdefault(name, log_id(str(value)) if name == "session" else value)
    if work.session is not None and ":" in work.session:
        event.setdefault("channel", split_session(work.session)[0])
    return event


def configure(settings: LogSettings, *, process: str, stream: TextIO | None = None, for_good: bool = False) -> None:
    """Send this process's log, and that of its libraries, to `stream` (stderr). Call once at start.
    With `for_good` each line costs less, and a later call has no effect on loggers already used."""
    out = stream if stream is not None else sys.stderr
    terminal = out.isatty()
    level = logging.getLevelNamesMapping()[settings.level.upper()]
    handler = logging.StreamHandler(out)
    factory: Any = structlog.stdlib.LoggerFactory()
    if settings.as_json(terminal=terminal):
        line = _Line(process)
        processors: list[structlog.typing.Processor] = [line]
        factory = partial(_Lines, handler)
        handler.setFormatter(line)
    else:
        ours = structlog.stdlib.ProcessorFormatter
        common: list[structlog.typing.Processor] = [
            add_work,
            structlog.stdlib.add_log_level,
            structlog.stdlib.add_logger_name,
            structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False),
            structlog.processors.StackInfoRenderer(),
            structlog.processors.format_exc_info,
        ]
        # The renderer's own tracebacks show local variables, and so what people wrote.
        renderer = structlog.dev.ConsoleRenderer(
            colors=settings.colour == "always" or (settings.colour == "auto" and terminal),
            pad_event_to=24,
            exception_formatter=structlog.dev.plain_traceback,
        )
        processors = [*common, ours.wrap_for_formatter]
        last: list[Any] = [ours.remove_processors_meta, _mask_secrets, _to_one_line, renderer]
        handler.setFormatter(ours(foreign_pre_chain=common, processors=last))
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=factory,
        cache_logger_on_first_use=for_good,
    )
    if for_good:
        logging._srcfile = None  # documented way to skip the search for the calling line
        logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in _QUIET:
        logging.getLogger(name).setLevel(max(level, logging.WARNING))


def configure_guest() -> None:
    """Show warnings alone, on stderr, in a program of somebody else that has configured no log."""
    if not structlog.is_configured():
        # The renderer's own tracebacks show local variables, and so what people wrote.
        renderer = structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
        structlog.configure(
            processors=[
                structlog.processors.add_log_level,
                structlog.processors.format_exc_info,
                _mask_secrets,
                renderer,
            ],
            wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
            logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        )


class _Line(logging.Formatter):
    """Formatter of JSON lines. Ours need no record of `logging`: a fraction of the cost."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def __call__(self, lines: _Lines, method: str, event: MutableMapping[str, Any]) -> str:
        return self._encode(lines.name, method, event)

    def format(self, record: logging.LogRecord) -> str:
        event: dict[str, Any] = {"event": record.getMessage()}
        if record.exc_info:
            event["exc_info"] = record.exc_info
        return self._encode(record.name, record.levelname.lower(), event)

    def _encode(self, name: str, method: str, event: MutableMapping[str, Any]) -> str:
        if "exc_info" in event:
            event = structlog.processors.format_exc_info(None, method, event)
        # Only the event's own fields are searched for secrets: hashes, numbers and names, which are
        # added below, hold none.
        line = {key: _clean(key, value) for key, value in event.items()}
        add_work(None, method, line)
        line["level"] = method
        line["logger"] = name
        now = datetime.now(UTC).replace(tzinfo=None)
        line["timestamp"] = f"{now.isoformat(timespec='microseconds')}Z"
        line["process"] = self._process
        return _encode(line)


class _Lines:
    """Writer of our lines to a handler's stream, under the handler's lock so that lines never mix.
    A line that cannot be written is dropped: no process may end because of its log."""

    def __init__(self, handler: logging.StreamHandler[TextIO], name: str) -> None:
        self.name = name
        self._handler = handler

    def write(self, line: str) -> None:
        handler = self._handler
        handler.acquire()
        try:
            handler.stream.write(f"{line}\n")
            handler.flush()
        except (OSError, ValueError):  # ValueError: the stream is closed
            pass
        finally:
            handler.release()

    debug = info = warning = error = critical = write


_encode: Final = json.JSONEncoder().encode


def _mask_secrets(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
    return {key: _clean(key, value) for key, value in event.items()}


def _clean(key: str, value: Any) -> Any:
    match value:
        case None | bool() | int() | float():
            return value
        case _ if key.lower() in _SECRET_FIELDS:
            return MASK
        case str():
            return redacted(value)
        case bytes():
            return redacted(value.decode(errors="replace"))
        case Mapping():
            return {str(inner): _clean(str(inner), one) for inner, one in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_clean("", one) for one in value]
        case _:
            return redacted(str(value))


def _to_one_line(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
    """Nobody outside can write lines of their own, or colours, onto the operator's terminal."""
    whole = ("exception", "stack")
    return {
        key: value.translate(_UNSEEN) if isinstance(value, str) and key not in whole else value
        for key, value in event.items()
    }
