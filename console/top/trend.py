"""The last minutes of the fleet as lines of blocks, for `shoal top`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.text import Text

from console.grid import fact, flow
from console.top.fleet_snapshot import TREND_LOOKS, TrendPoint

_BLOCKS: Final = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float]) -> str:
    """Draw values as blocks, the highest of them as a whole one; zeros as the lowest block."""
    top = max(values, default=0.0)
    last = len(_BLOCKS) - 1
    return "".join(_BLOCKS[max(1, round(last * value / top)) if value > 0 else 0] for value in values)


def render_trend(points: Sequence[TrendPoint], width: int) -> list[Text]:
    """Render both lines side by side, as many of the newest points as fit; nothing before there are
    two."""
    if len(points) < 2:
        return []
    room = max(8, (width - 50) // 2)
    shown = points[-min(room, TREND_LOOKS) :]
    ended = [one.ended_per_s for one in shown]
    waiting = [one.waiting for one in shown]
    facts = [
        fact(sparkline(ended), name="turns/s", after=f"up to {max(ended):.3g}"),
        fact(sparkline(waiting), name="waiting", after=f"up to {max(waiting):,}"),
    ]
    return flow("trend", facts, width)
