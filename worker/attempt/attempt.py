"""The flow of every attempt: from a claimed lease to a commit, a release or a dead letter.

A turn and a subagent fail in the same ways: they crash, are isolated, lose their lease, find their
model unavailable. `run_attempt` handles these once; an `Attempt` adds what its kind does at its
end.
"""

from __future__ import annotations

import random
from typing import ClassVar, Final, Protocol

from shared.errors import (
    LeaseLost,
    ModelError,
    RedisAway,
    TurnLimited,
    TurnParked,
    TurnReleased,
    TurnStopped,
)
from shared.log import Logger
from shared.settings import AgentSettings
from shared.store.turns.queue import SubagentWork, TurnWork
from worker.agent.turn import AgentResult
from worker.attempt.apologies import APOLOGIES
from worker.attempt.quarantine import AFTER_CRASHES, Quarantine, Verdict
from worker.lease.lease import Lease
from worker.turn.journal import STORE_PATIENCE_S

CRASH_LIMIT: Final = 8
"""Crashes of workers after which the work ends, whatever a quarantine found."""

NEWER_RELEASE_WAIT_S: Final = 5.0
"""Delay of work that a newer version began, until a worker of that version takes it."""

ERROR_WAITS_S: Final = (1.0, 5.0)
"""Upper limits of the waits between tries after an error. There is one more try than waits."""

MODEL_WAITS_S: Final = (2.0, 4.0, 8.0, 15.0, 30.0)
MODEL_WAIT_CAP_S: Final = 60.0


class Attempt(Protocol):
    """One attempt at the work of `lease`: the steps in which a turn and a subagent differ."""

    log: ClassVar[Logger]
    failed_event: ClassVar[str]
    lease: Lease
    limit_s: float

    @property
    def work(self) -> TurnWork | SubagentWork:
        """The counters and the ledger that the store returned with the claim."""
        ...

    async def run(self) -> AgentResult:
        """Let the agent do the work. Raises what `run_agent` raises."""
        ...

    async def finish(self, result: AgentResult) -> str:
        """Write the result; return the outcome. Raises LeaseLost, RedisAway."""
        ...

    async def stop(self, stopped: TurnStopped, *, isolated: bool) -> str:
        """End work that a person stopped; return the outcome. Raises LeaseLost, RedisAway."""
        ...

    async def give_up(self, reason: str, note: str = "") -> str:
        """End work that failed for `reason`; return the outcome. `note` continues "I" or "It".

        Raises LeaseLost, RedisAway.
        """
        ...

    async def refused(self, error: ModelError) -> str:
        """End work that the model does not accept; return the outcome. Raises LeaseLost,
        RedisAway."""
        ...

    async def still_waiting(self, waited_s: float) -> None:
        """Tell the person that the model has been unavailable for a while, if there is one."""
        ...

    async def after_loss(self, lost: LeaseLost) -> str | None:
        """Return the outcome when a lost lease means that the work is over; None when it is not."""
        ...


async def run_attempt(
    attempt: Attempt, *, quarantine: Quarantine | None, settings: AgentSettings, rng: random.Random
) -> str:
    """Run the work to its end or release it; return the outcome. Raises LeaseLost, RedisAway."""
    lease, work = attempt.lease, attempt.work
    if work.crashes >= CRASH_LIMIT:
        return await attempt.give_up("crashes")
    if attempt.limit_s <= 0:  # earlier attempts used all of its time
        return await attempt.give_up("timeout")
    verdict: Verdict | None = None
    quarantine = quarantine if work.crashes >= AFTER_CRASHES else None
    try:
        # A child process has its own time limit: this one must not kill it while it commits.
        with lease.interruptible(None if quarantine else attempt.limit_s) as limit:
            if quarantine is not None:
                verdict = await quarantine.run(lease)
            else:
                result = await attempt.run()
                # The agent is done. Waiting for Redis must not turn its answer into a time-out.
                limit.stop_timer()
                await lease.allow()
    except TurnStopped as exc:
        return await attempt.stop(exc, isolated=quarantine is not None)
    except TurnParked:
        return "parked"
    except TurnReleased as exc:
        await lease.queue.release(lease.claim, delay_s=exc.delay_s, retry_for_s=STORE_PATIENCE_S)
        return "released"
    except TurnLimited as exc:
        return await attempt.give_up(exc.limit, f"had to stop: {exc}.")
    except TimeoutError:
        if lease.suspended:
            # Redis took that long, not the work. Once it is back, the next owner resumes the work.
            await lease.queue.release(lease.claim, retry_for_s=STORE_PATIENCE_S)
            return "released"
        return await attempt.give_up("timeout")
    except ModelError as exc:
        return await _after_model_error(attempt, exc, settings, rng)
    except LeaseLost as exc:
        if quarantine is not None:
            # The child ended the work, and a renewal here found that the lease no longer exists.
            return "quarantine_ended"
        if (outcome := await attempt.after_loss(exc)) is None:
            raise
        return outcome
    except RedisAway:
        raise  # nothing of this work can be written any more
    except Exception:
        attempt.log.exception(attempt.failed_event, errors=work.errors + 1)
        wait_s = error_wait(work.errors, rng)
        if wait_s is None:
            return await attempt.give_up("error")
        await lease.queue.release(lease.claim, delay_s=wait_s, count="errors", retry_for_s=STORE_PATIENCE_S)
        return "error"
    if verdict is None:
        return await attempt.finish(result)
    if verdict == "guilty":
        return await attempt.give_up("poison")
    if verdict == "unproven":
        await lease.queue.release(lease.claim, delay_s=1.0, count="crashes", retry_for_s=STORE_PATIENCE_S)
    return f"quarantine_{verdict}"


async def _after_model_error(attempt: Attempt, error: ModelError, settings: AgentSettings, rng: random.Random) -> str:
    lease, work = attempt.lease, attempt.work
    attempt.log.warning("model failed", kind=error.kind, retryable=error.retryable)
    if not error.retryable:
        return await attempt.refused(error)
    unavailable_s = work.model_unavailable_ms / 1000
    wait_s = unavailable_wait(error, work.attempt, unavailable_s, settings, rng)
    if wait_s is None:
        return await attempt.give_up("model_away")
    await attempt.still_waiting(unavailable_s + wait_s)
    await lease.queue.release(lease.claim, delay_s=wait_s, count="away", retry_for_s=STORE_PATIENCE_S)
    return "model_away"


def refusal_reason(error: ModelError) -> str:
    """Return the reason of the dead letter for an error that waiting cannot mend."""
    return error.kind if error.kind in APOLOGIES else "error"


def unavailable_wait(
    error: ModelError, attempt: int, unavailable_s: float, settings: AgentSettings, rng: random.Random
) -> float | None:
    """Return the seconds until an unavailable model is asked again; None when it is given up."""
    if unavailable_s > settings.give_up_s:
        return None
    ceiling = MODEL_WAITS_S[min(attempt, len(MODEL_WAITS_S)) - 1]
    wanted_s = max(error.retry_after_s or 0.0, rng.uniform(ceiling / 2, ceiling))
    # The last wait ends about when the model would be given up, so that the chat is not blocked
    # longer.
    return min(wanted_s, MODEL_WAIT_CAP_S, max(1.0, settings.give_up_s - unavailable_s))


def error_wait(errors: int, rng: random.Random) -> float | None:
    """Return the seconds until the next try after `errors` earlier errors; None when it was the
    last."""
    return rng.uniform(0, ERROR_WAITS_S[errors]) if errors < len(ERROR_WAITS_S) else None
