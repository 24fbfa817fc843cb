"""`shoal top` without a screen: one snapshot, or one after another."""

from __future__ import annotations

import json
from typing import Any, Final

import click

from console.redis_call import with_redis
from console.top.fleet_snapshot import take_snapshot
from console.top.page import Observation
from console.top.poller import SnapshotPoller
from console.top.problems import problems
from console.top.report import KEYS, as_lines, as_object, out_width, print_lines

_KEPT_AWAY: Final[dict[str, Any]] = dict.fromkeys(KEYS)


def print_once(*, as_json: bool) -> None:
    """Print one snapshot. Raises RedisAway."""
    found = with_redis(lambda client, _: take_snapshot(client))
    _print(Observation(found, tuple(problems(found))), as_json=as_json)


async def print_looks(watch: SnapshotPoller, every_s: float, *, as_json: bool) -> None:
    """Print a snapshot every `every_s` until cancelled or the reader is gone, also while Redis is
    unavailable."""
    async for look in watch.observations(every_s):
        _print(look, as_json=as_json)
        if not as_json:
            click.echo()


def _print(look: Observation, *, as_json: bool) -> None:
    """Print one observation. As JSON it always has every key; without Redis all but `away` are
    null."""
    if as_json:
        away = look.away and {"since_ms": round(look.away.since * 1000), "why": look.away.why}
        known = _KEPT_AWAY if look.found is None or away else as_object(look.found, look.wrong)
        click.echo(json.dumps({"away": away, **known}))
    elif look.away is not None:
        click.echo(look.away.why, err=True)
    elif look.found is not None:
        print_lines(as_lines(look.found, look.wrong, out_width()))
