"""Schedules as models write them: names for expressions, steps that no field has, zones of any name."""

from __future__ import annotations

from typing import Any, Final

import pytest

from shared.errors import BadInput, ToolFailed
from shared.messages.schedule import CronPlan, Schedule, local_time
from shared.store.schedules.times import check_plan, check_steps, next_tick
from tests.helpers.clock import HandClock
from worker.agent.tools.tool import ToolContext
from worker.tools.cron import CronArguments, CronTool, CurrentTime, CurrentTimeArguments

NOW: Final = 1_795_262_400_000  # Saturday, 2026-11-21, 12:00 UTC
MACROS: Final = {
    "@hourly": "2026-11-21 13:00",
    "@daily": "2026-11-22 00:00",
    "@midnight": "2026-11-22 00:00",
    "@weekly": "2026-11-22 00:00",
    "@monthly": "2026-12-01 00:00",
    "@yearly": "2027-01-01 00:00",
    "@annually": "2027-01-01 00:00",
    "@Daily": "2026-11-22 00:00",
}


@pytest.mark.parametrize("macro", MACROS)
def test_a_name_for_an_expression_is_accepted(macro: str) -> None:
    """As cron itself takes it."""
    plan = CronPlan(macro, "UTC")
    first = check_plan(plan, now_ms=NOW, min_every_s=60)
    assert local_time(first, "UTC").startswith(MACROS[macro])
    assert next_tick(plan, NOW) == first


@pytest.mark.parametrize("macro", ["@reboot", "@every 5m", "@", "daily"])
def test_another_name_is_refused(macro: str) -> None:
    """It says what an expression is."""
    with pytest.raises(BadInput, match="five fields"):
        check_plan(CronPlan(macro, "UTC"), now_ms=NOW, min_every_s=60)


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("*/90 * * * *", "for every 90 minutes give every_seconds=5400 instead"),
        ("0-59/90 * * * *", "every_seconds=5400"),
        ("5,*/120 * * * *", "every_seconds=7200"),
        ("0 */36 * * *", "for every 36 hours give every_seconds=129600 instead"),
        ("0 9 */45 * *", "for every 45 days give every_seconds=3888000 instead"),
        ("0 9 1 */18 *", "give the months by their numbers"),
        ("0 9 * * */10", "every_seconds=864000"),
    ],
)
async def test_a_step_larger_than_its_field_is_refused_with_advice(expression: str, says: str) -> None:
    """Cron would run it each hour, without a word."""
    context = ToolContext(session="s", turn=1, call_id="c", clock=HandClock(NOW / 1000))
    with pytest.raises(ToolFailed) as raised:
        await CronTool().run(CronArguments("add", message="x", cron_expr=expression), context)
    assert says in str(raised.value)


@pytest.mark.parametrize("expression", ["*/15 * * * *", "*/60 * * * *", "0 */24 * * *", "0 9 */2 */12 1-5", "@daily"])
def test_a_step_within_its_field_is_accepted(expression: str) -> None:
    """Also one of the whole field."""
    check_steps(expression)


class _Schedules:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.plans: list[Any] = []

    async def add(self, text: str, plan: Any, **fields: Any) -> Any:
        self.plans.append(plan)
        zone = fields["timezone"]
        made = Schedule(id="1", owner="o", channel="c", chat_id="x", text=text, plan=plan, timezone=zone)
        return made, NOW


async def test_a_zone_by_another_name_is_named_in_the_answer() -> None:
    """The model sees what its word became."""
    schedules = _Schedules()
    port: Any = schedules
    context = ToolContext(session="s", turn=1, call_id="c", clock=HandClock(NOW / 1000), schedules=port)
    arguments = CronArguments("add", message="x", cron_expr="@daily", timezone="Asia/Beijing")
    answer = await CronTool().run(arguments, context)
    assert schedules.plans == [CronPlan("0 0 * * *", "Asia/Shanghai")]
    assert answer.endswith("'Asia/Beijing' is read as the time zone Asia/Shanghai.")
    time = await CurrentTime().run(CurrentTimeArguments("new york"), context)
    assert time == "2026-11-21 07:00:00 (Saturday), America/New_York (UTC-05:00)"


BEFORE: Final = {
    "test_a_name_for_an_expression_is_accepted": 0,
    "test_another_name_is_refused": 4,
    "test_a_step_larger_than_its_field_is_refused_with_advice": 0,
    "test_a_step_within_its_field_is_accepted": 4,
    "test_a_zone_by_another_name_is_named_in_the_answer": 0,
}
