"""The flow of every attempt: from a claimed lease to a commit, a release or a dead letter. A turn
and a subagent fail in the same ways: they crash, are isolated, lose their lease, find their model
unavailable. `Attempt` handles these once; its two kinds add what they do at their end."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, Final

from shared import errors
from shared.clock import SYSTEM_CLOCK, Clock
from shared.errors import LeaseLost, ModelClosed, ModelError, TurnStopped
from shared.log import Logger
from shared.settings import AgentSettings
from shared.store.turns.queue import SubagentWork, TurnWork
from worker.agent.turn import AgentResult
from worker.attempt.quarantine import AFTER_CRASHES, Quarantine, Verdict
from worker.lease.lease import Lease

Work = TurnWork | SubagentWork

CRASH_LIMIT: Final = 8  # crashes of workers after which the work ends, whatever a quarantine found
NEWER_RELEASE_WAIT_S: Final = 5.0  # until a worker of the newer version takes its work
ERROR_WAITS_S: Final = (1.0, 5.0)
"""Upper limits of the waits between tries after an error. There is one more try than waits."""

MODEL_WAITS_S: Final = (2.0, 4.0, 8.0, 15.0, 30.0)
MODEL_WAIT_CAP_S: Final = 60.0

APOLOGIES: Final = {
    "bad_record": "Sorry, this message could not be read, so I cannot answer it.",
    "poison": "Sorry, something in this message makes me fail every time, so I have put it aside.",
    "crashes": "Sorry, something in this message makes me fail every time, so I have put it aside.",
    "auth": "Sorry, I cannot answer: the key for the model is not accepted. Please tell whoever runs this service.",
    "billing": "Sorry, I cannot answer: the account for the model is empty. Please tell whoever runs this service.",
    "bad_request": "Sorry, the model refused this request.",
    "invalid_output": "Sorry, the model's answer did not have the form that was asked for.",
    "context_length": "Sorry, this conversation has become too long for the model.",
    "model_away": "Sorry, the model could not be reached for a long time, so I stopped trying.",
    "model_fails": "Sorry, the model failed at this message again and again, so I stopped trying.",
    "timeout": "Sorry, this took too long, so I stopped working on it.",
    "error": "Sorry, something went wrong on my side and I could not answer this.",
}
"""Replies to a message that gets no answer, by the reason of its dead letter."""


@dataclass(kw_only=True, eq=False)
class AttemptRules:
    """The common part of the runners of turns and of subagents."""

    settings: AgentSettings = field(default_factory=AgentSettings)
    quarantine: Quarantine | None = None
    clock: Clock = SYSTEM_CLOCK
    rng: random.Random = field(default_factory=random.Random)


class Attempt(ABC):
    """One attempt at the work of `lease`, which may take `limit_s`. All methods that write raise
    LeaseLost and RedisAway, and return the outcome."""

    log: ClassVar[Logger]
    failed_event: ClassVar[str]
    rules: AttemptRules
    work: Work

    def __init__(self, rules: AttemptRules, lease: Lease, work: Work, limit_s: float) -> None:
        self.rules = rules
        self.lease = lease
        self.work = work
        self.limit_s = limit_s
        self._began = rules.clock.monotonic()

    @abstractmethod
    async def run(self) -> AgentResult:
        """Let the agent do the work. Raises what `run_agent` raises."""

    @abstractmethod
    async def finish(self, result: AgentResult) -> str:
        """Write the result."""

    @abstractmethod
    async def stop(self, stopped: TurnStopped) -> str:
        """End work that a person stopped."""

    @abstractmethod
    async def give_up(self, reason: str, note: str = "", words: str = "") -> str:
        """End work that failed for `reason`. `note` continues "I" or "It"; `words` are those of
        the model's provider, for the owner."""

    @abstractmethod
    async def refused(self, error: ModelError) -> str:
        """End work that the model does not accept."""

    @abstractmethod
    async def still_waiting(self, error: ModelError, wait_s: float) -> None:
        """Tell the person, if there is one, why the work waits, and for how long."""

    async def after_loss(self) -> str | None:
        """Return the outcome when a lost lease means that the work is over."""
        return None

    async def run_to_end(self) -> str:
        """Run the work to its end or release it."""
        lease = self.lease
        work = self.work
        if work.crashes >= CRASH_LIMIT:
            return await self.give_up("crashes")
        if self.limit_s <= 0:  # earlier attempts used all of its time
            return await self.give_up("timeout")
        verdict: Verdict | None = None
        quarantine = self.rules.quarantine
        try:
            if quarantine is not None and work.crashes >= AFTER_CRASHES:
                # A child process has its own time limit, and learns by itself of stops and losses.
                verdict = await quarantine.run(lease, work.crashes)
            if verdict is None:
                with lease.interruptible(self.limit_s) as limit:
                    result = await self.run()
                    # The agent is done. Waiting for Redis must not turn its answer into a time-out.
                    limit.stop_timer()
                    await lease.allow()
        except TurnStopped as exc:
            return await self.stop(exc)
        except errors.TurnParked:
            return "parked"
        except errors.TurnReleased as exc:
            await lease.release(delay_s=exc.delay_s)
            return "released"
        except errors.TurnLimited as exc:
            return await self.give_up(exc.limit, f"had to stop: {exc}.")
        except TimeoutError:
            if lease.suspended:
                # Redis took that long, not the work. Once it is back, the next owner resumes it.
                await lease.release()
                return "released"
            return await self.give_up("timeout")
        except ModelError as exc:
            return await self._after_model_error(exc)
        except LeaseLost:
            if (outcome := await self.after_loss()) is None:
                raise
            return outcome
        except Exception as exc:
            if isinstance(exc, errors.RedisAway) and not isinstance(exc, errors.ReplyError):
                raise  # nothing of this work can be written any more
            self.log.exception(self.failed_event, errors=work.errors + 1)
            if work.errors >= len(ERROR_WAITS_S):
                return await self.give_up("error")
            wait_s = self.rules.rng.uniform(0, ERROR_WAITS_S[work.errors])
            await lease.release(delay_s=wait_s, count="errors")
            return "error"
        if verdict is None:
            return await self.finish(result)
        if verdict == "guilty":
            return await self.give_up("poison")
        if verdict == "split":
            await lease.release(count="isolated")
        elif verdict == "unproven":
            await lease.release(delay_s=1.0, count="crashes")
        return f"quarantine_{verdict}"

    async def _after_model_error(self, error: ModelError) -> str:
        kind = error.kind
        alone = error.alone
        words = error.reason
        self.log.warning("model failed", kind=kind, retryable=error.retryable, alone=alone, provider_says=words)
        if not error.retryable:
            return await self.refused(error)
        reason, left_s = self._patience(alone)
        if left_s < 0:
            return await self.give_up(reason, words=words)
        # The last wait ends about when the model would be given up, so that the chat is not
        # blocked longer.
        wait_s = min(self._wanted_wait(error), MODEL_WAIT_CAP_S, max(1.0, left_s))
        await self.still_waiting(error, wait_s)
        await self.lease.release(delay_s=wait_s, count="alone" if alone else "away")
        return "model_away"

    def _patience(self, alone: bool) -> tuple[str, float]:
        """Return for how long the work may wait yet for its model, negative when that is over, and
        the reason for which it is given up then."""
        work = self.work
        settings = self.rules.settings
        left_s = settings.give_up_s - work.model_unavailable_ms / 1000
        alone_s = settings.give_up_alone_s
        if work.alone_ms:  # this attempt counts, too: its tries take a while
            alone_s -= work.alone_ms / 1000 + self.rules.clock.monotonic() - self._began
        return ("model_fails", alone_s) if alone and alone_s < left_s else ("model_away", left_s)

    def _wanted_wait(self, error: ModelError) -> float:
        """Return the wait until the next attempt: as long as the provider wishes, and longer from
        attempt to attempt. A closed provider was not asked: it names the time itself."""
        if isinstance(error, ModelClosed):
            return error.retry_after_s or 0.0
        ceiling = MODEL_WAITS_S[min(self.work.attempt, len(MODEL_WAITS_S)) - 1]
        return max(error.retry_after_s or 0.0, self.rules.rng.uniform(ceiling / 2, ceiling))
