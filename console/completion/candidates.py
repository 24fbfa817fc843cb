"""Completion of ids and names from Redis, in addition to commands and options.

It must be instant, and a terminal is not the place to complain: a Redis that is slow or away
offers nothing.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import click
from click.shell_completion import CompletionItem

from shared.errors import ShoalError
from shared.process.resp import Answer, RespConnection, RespError
from shared.store import keys

LIMIT_S: Final = 1.0
MOST: Final = 50
SCANS: Final = 20
SCAN_COUNT: Final = 1000

# A name that a shell would take for more than a word is not offered: whoever chose it might wait
# for just that.
_HARMLESS: Final = re.compile(r"[\w.,:/@%+=-]+", re.ASCII)
_GLOB: Final = re.compile(r"([\[\]*?\\])")

Offer = Iterable[tuple[str, str]]
"""Values, and a few words about each."""


def letters(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """References of the newest dead letters."""
    return _offered(_letters, incomplete)


def sessions(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of sessions. In a big store some of them: so many keys are looked at and no more."""
    return _offered(lambda redis: _sessions(redis, incomplete), incomplete)


def jobs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Ids of subagents that run or wait."""
    return _offered(
        lambda redis: ((id, "") for id in _texts(redis.command("ZRANGE", keys.SUBAGENTS, "0", "999"))), incomplete
    )


def schedules(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Ids of schedules, the next ones first."""
    return _offered(_schedules, incomplete)


def _offered(find: Callable[[RespConnection], Offer], incomplete: str) -> list[CompletionItem]:
    from shared.settings import load, redis_url

    # Whatever hangs (a name server, a server that was stopped), and whoever waits for a thread at
    # the end of a process.
    signal.signal(signal.SIGALRM, lambda *_: os._exit(0))
    signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
    found: dict[str, CompletionItem] = {}
    try:
        connection = RespConnection(redis_url(load()), timeout_s=LIMIT_S)
        for value, about in find(connection):
            if value.startswith(incomplete) and _HARMLESS.fullmatch(value) and len(found) < MOST:
                found.setdefault(value, CompletionItem(value, help=about or None))
        connection.close()
    except (ShoalError, RespError, OSError):
        return []
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return list(found.values())


def _letters(redis: RespConnection) -> Iterator[tuple[str, str]]:
    from shared.store.client.scripts import load

    rows = redis.command("EVAL", load("turns/dead_page").source, "1", keys.DEAD, "XREVRANGE", "+", "-", str(2 * MOST))
    for row in rows if isinstance(rows, list) else []:
        id, _, _, reason = _texts(row)[:4]
        why, _, reference = reason.rpartition(" ")
        yield (reference, why) if why else (id, reason)


def _sessions(redis: RespConnection, incomplete: str) -> Offer:
    prefix = keys.session("")
    pattern = prefix + _GLOB.sub(r"\\\1", incomplete) + "*"
    cursor, names = "0", set[str]()
    for _ in range(SCANS):
        answer = redis.command("SCAN", cursor, "MATCH", pattern, "COUNT", str(SCAN_COUNT))
        assert isinstance(answer, list)
        [cursor] = _texts([answer[0]])
        names.update(name.removeprefix(prefix) for name in _texts(answer[1]))
        if cursor == "0" or len(names) >= MOST:
            break
    return [(name, "") for name in sorted(names)]


def _jobs(redis: RespConnection) -> Iterator[tuple[str, str]]:
    for id in _texts(redis.command("ZRANGE", keys.SUBAGENTS, "0", "999")):
        yield id, ""


def _schedules(redis: RespConnection) -> Iterator[tuple[str, str]]:
    for member in _texts(redis.command("ZRANGE", keys.SCHEDULES, "0", "999")):
        id, _, session = member.partition(":")
        yield id, session


def _texts(answer: Answer) -> list[str]:
    """The texts of a list; what is none is ''."""
    parts = answer if isinstance(answer, list) else []
    return [part.decode(errors="replace") if isinstance(part, bytes) else "" for part in parts]
