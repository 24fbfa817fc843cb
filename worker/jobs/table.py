"""The functions of a worker as arq knows them: names, limits, times."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any, Final

from arq import Retry, cron, func
from arq.worker import Function

from shared.errors import TryLater
from shared.tracing import span
from shared.tracing.spans import JOB
from worker.jobs.log_sweep import sweep_logs
from worker.jobs.memory import JOB_S, PATIENT_TRIES, archive, consolidate, idle, rework
from worker.jobs.sweep import expire_media, forget_media, sweep, sweep_ephemeral_sessions
from worker.jobs.titles import title
from worker.lease.lease import Lease

MAX_TRIES: Final = 2 * PATIENT_TRIES
"""The end of a job that is put off for ever. Jobs count their own tries."""

SWEEP_S: Final = 50.0


async def run_turn(ctx: dict[str, Any], lease: Lease) -> None:
    """Run one turn of a chat, to its end or to its release. The worker calls it with the lease."""
    await _run_leased(ctx, lease)


async def run_subagent(ctx: dict[str, Any], lease: Lease) -> None:
    """Run one subagent, to its end or to its release. The worker calls it with the lease."""
    await _run_leased(ctx, lease)


async def _run_leased(ctx: dict[str, Any], lease: Lease) -> None:
    if not isinstance(lease, Lease):
        # A job by this name was queued. What it asks for has no lease that could fence it.
        raise TypeError("only a worker calls this function, with a lease; to ask, send the chat a message")
    await ctx["deps"].run_work(lease)


async def probe(ctx: dict[str, Any], text: str = "") -> str:
    """Return `text`: `shoal doctor --probe` uses this to see whether workers run jobs."""
    return text


async def ask_model(ctx: dict[str, Any], preset: str = "") -> tuple[bool, str]:
    """Ask a model one question: `shoal doctor` and the page's settings show what came, and whether
    that is an answer."""
    answer: tuple[bool, str] = await ctx["deps"].ask_model(preset)
    return answer


async def list_models(ctx: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the models of this worker for the page's settings; keys are in none."""
    cards: list[dict[str, Any]] = ctx["deps"].list_models()
    return cards


def _make_job(work: Callable[[dict[str, Any], str], Awaitable[None]]) -> Function:
    """Return arq's form of a job. TryLater is another try; no result is kept: an id can return."""

    @functools.wraps(work)
    async def run(context: dict[str, Any], name: str) -> None:
        try:
            with span(JOB, work.__name__) as job_span:
                job_span.set("shoal.attempt", context["job_try"])
                await work(context, name)
        except TryLater as exc:
            raise Retry(defer=exc.wait_s) from exc

    made: Any = run  # arq's type wants any arguments
    return func(made, timeout=JOB_S + 60, max_tries=MAX_TRIES, keep_result=0)


_cron: Any = functools.partial(cron, max_tries=1)  # likewise
FUNCTIONS: Final = tuple(map(_make_job, (consolidate, idle, archive, rework, forget_media, title)))
CRON: Final = (
    _cron(sweep, name="sweep", second=0, timeout=SWEEP_S),
    _cron(sweep_ephemeral_sessions, name="throw-away sessions", second=30, timeout=SWEEP_S),
    _cron(sweep_logs, name="long logs", second=15, timeout=SWEEP_S),
    _cron(expire_media, name="expire media", minute=17, second=0, timeout=JOB_S),
)
