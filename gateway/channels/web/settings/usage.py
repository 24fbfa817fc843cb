"""`/settings/usage`: tokens and money of a person today and this month, and what limits them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from starlette.requests import Request

from shared.ids import WEB, person_of, session_id
from shared.settings import Settings
from shared.store.client.redis_client import RedisClient
from shared.store.fleet.spending import DAY_MS, Spending, Spent
from shared.store.sessions.chats import ChatInfo, Chats

DAYS_SHOWN: Final = 30
LATEST: Final = 200
CHATS_SHOWN: Final = 5


class UsagePart:
    """Adds up what a person used on the page and over the API."""

    def __init__(self, client: RedisClient, settings: Settings) -> None:
        self._spending = Spending(client)
        self._chats = Chats(client)
        self._budget = settings.budget

    async def show_usage(self, principal: str, request: Request) -> dict[str, Any]:
        """Return totals, days, and the chats that used most today. A limit is that of one chat."""
        person = person_of(session_id(WEB, f"{principal}/x"))
        used = await self._spending.of_person(person)
        month = _date(used.today)[:7]
        return {
            "today": _total([one for one in used.days if one.day == used.today]),
            "month": _total([one for one in used.days if _date(one.day)[:7] == month]),
            "days": [
                {"date": _date(one.day), **_total([one])} for one in used.days if one.day > used.today - DAYS_SHOWN
            ],
            "date": _date(used.today),
            "chats": await self._dearest(principal, used.today),
            "limits": {
                "tokens": self._budget.tokens_per_day,
                "usd": self._budget.usd_per_day,
                "warn_at": self._budget.warn_at,
            },
        }

    async def _dearest(self, principal: str, today: int) -> list[dict[str, Any]]:
        """Return the chats that used most today. Only chats of today can have used anything."""
        latest = await self._chats.latest(WEB, principal, LATEST)
        chats = [one for one in latest if one.at // DAY_MS >= today - 1]
        if not chats:
            return []
        spent = await self._spending.read_many([session_id(WEB, one.chat_id) for one in chats])
        rows = [row for row in zip(chats, spent, strict=True) if row[1].tokens or row[1].usd]
        rows.sort(key=lambda row: (row[1].usd, row[1].tokens), reverse=True)
        return [_row(*row) for row in rows[:CHATS_SHOWN]]


def _row(chat: ChatInfo, spent: Spent) -> dict[str, Any]:
    return {"chat": chat.chat_id.partition("/")[2], "title": chat.title, **_total([spent])}


def _total(days: list[Spent]) -> dict[str, Any]:
    return {"tokens": sum(one.tokens for one in days), "usd": round(sum(one.usd for one in days), 6)}


def _date(day: int) -> str:
    return f"{datetime.fromtimestamp(day * DAY_MS / 1000, UTC):%Y-%m-%d}"
