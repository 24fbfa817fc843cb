"""Frames about one answer of a chat: a branch begins with it, or a person rates it."""

from __future__ import annotations

from shared.ids import WEB, log_id
from shared.log import logger
from shared.messages.web import BranchFrame, RateFrame
from shared.metrics import ANSWERS_RATED
from shared.store.answers.branches import Branches
from shared.store.answers.ratings import Ratings
from shared.store.client.redis_client import RedisClient
from shared.store.turns.inbox import InboxLimits

log = logger("web")


class AnswerKeeper:
    """Makes branches and keeps ratings, for all principals. Methods raise BadInput, Refused,
    RedisAway."""

    def __init__(self, client: RedisClient, limits: InboxLimits) -> None:
        self._branches = Branches(client, limits, WEB)
        self._ratings = Ratings(client, limits)

    async def branch(self, principal: str, frame: BranchFrame) -> None:
        """Make the branch that the frame asks for, unless an earlier one did."""
        branch = await self._branches.make(principal, frame.chat, frame.to, seq=frame.seq)
        if branch.new:
            log.info("branch made", principal=principal)

    async def rate(self, session: str, frame: RateFrame) -> None:
        """Rate an answer. Every socket of its chat gets the line about it."""
        await self._ratings.rate(session, frame.seq, frame.rating)
        ANSWERS_RATED.labels(frame.rating or "none").inc()
        log.debug("answer rated", session=log_id(session), rating=frame.rating or "none")
