"""The budgets of a place: what a platform counts together, what apart, and what is left to replies."""

from __future__ import annotations

from collections.abc import Iterable

from gateway.delivery.platform_calls import Rates, rates_of, spare
from gateway.platform.protocol import Abilities, PostTarget, Rate
from shared.store.delivery.deliveries import RateKey

BOT, CHAT, GROUP = Rate("bot", 30.0, 30), Rate("chat", 1.0, 3), Rate("group", 0.3, 20)


def of(*rates: Rate, thread: str | None = None, group: bool = False) -> Rates:
    place = PostTarget(session="x:c", chat_id="c", thread=thread)
    return rates_of(place, Abilities(run_modes=("webhook",), resend_guard="nothing", rates=rates), group=group)


def names(keys: Iterable[RateKey]) -> list[str]:
    return [key.name for key in keys]


def test_calls_count_against_the_budgets_of_the_bot_the_chat_and_the_group() -> None:
    """Threads of a chat share its budget."""
    for thread in ("1", "2"):
        assert names(of(BOT, CHAT, GROUP, thread=thread, group=True).posts) == ["bot", "chat:c", "group:c"]
    alone = of(BOT, CHAT, GROUP).posts
    assert [(key.name, key.per_s, key.burst, key.reserve) for key in alone] == [
        ("bot", 30.0, 30, 0),
        ("chat:c", 1.0, 3, 0),
    ]


def test_what_is_counted_together_is_one_budget_and_what_is_counted_separately_is_two() -> None:
    """Of new messages and edits; "is typing" is neither."""
    together = of(BOT, CHAT)
    assert together.posts == together.edits
    separate = of(BOT, Rate("chat", 1.0, 3, "posts"), Rate("chat", 0.5, 2, "edits"), Rate("bot", 0.8, 5, "edits"))
    assert names(separate.posts) == ["bot", "posts:chat:c"]
    assert names(separate.edits) == ["bot", "edits:chat:c", "edits:bot"]
    assert names(separate.typing) == ["bot"]
    assert of(Rate("bot", 0.8, 5, "edits")).typing == []


def test_two_limits_of_one_kind_are_two_budgets() -> None:
    """So many a second, and so many a minute; the same names whether the place is a group or not."""
    both = (Rate("bot", 50.0, 50), Rate("bot", 16.0, 100), Rate("group", 1.0, 1), Rate("chat", 5.0, 5))
    assert names(of(*both).posts) == ["bot", "2:bot", "chat:c"]
    assert names(of(*both, group=True).posts) == ["bot", "2:bot", "group:c", "chat:c"]


def test_what_may_be_left_out_leaves_half_of_a_burst() -> None:
    """Each budget once, also where new messages and edits are counted together. A burst of one is no reserve."""
    found = spare([*of(BOT, CHAT).posts, *of(BOT, CHAT).edits, RateKey("one", 1.0, 1)])
    assert [(key.name, key.burst, key.reserve) for key in found] == [("bot", 30, 15), ("chat:c", 3, 1), ("one", 1, 0)]
    assert [(key.name, key.reserve) for key in of(BOT).typing] == [("bot", 15)]
