"""The fleet as `shoal status` and `shoal top` show it: blocks of lines, service to people first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from rich.text import Text

from console.grid import WARNING, WRONG, Cell, Column, fact, flow, grid, wrapped
from console.top.fleet_snapshot import DurationQuantiles, FleetSnapshot, aggregate
from console.top.problems import LAG_LIMIT_S, MEMORY_LIMIT, OUTBOX_LIMIT_S, WAIT_LIMITS_S, Problem
from shared.store.fleet.presence import Presence
from shared.store.fleet.provider_limits import RouteReading
from shared.terminal_text import brief, counted, duration, size

SORTS: Final[dict[str, Callable[[Presence], tuple[float, str]]]] = {
    "name": lambda one: (0, one.name),
    "runs": lambda one: (-one.running, one.name),
    "memory": lambda one: (-one.stats.memory_bytes if one.stats else 0, one.name),
    "late": lambda one: (-one.stats.lag_s if one.stats else 0, one.name),
}
LAG_WARNING_S: Final = 0.25

_STATS: Final = (
    Column("memory", 6, right=True),
    Column("late", 7, right=True),
    Column("up", 5, right=True),
    Column("version", 3),
)
_COLUMNS: Final = {
    "worker": (
        Column("worker", 9, least=12),
        Column("host", 4, least=8),
        Column("state", 8),
        Column("runs", 9, right=True),
        Column("turns/s", 7, right=True),
        *_STATS,
        Column("model", 2, least=12),
        Column("queues", 1),
        Column("sandbox", 1),
        Column("pid", 0, right=True),
    ),
    "gateway": (
        Column("gateway", 9, least=14),
        Column("host", 2, least=8),
        Column("state", 8),
        Column("channels", 8, least=8, from_end=True),
        Column("sockets", 8, right=True),
        Column("in/s", 7, right=True),
        *_STATS,
        Column("address", 1),
        Column("pid", 0, right=True),
    ),
}


class Block(NamedTuple):
    """Lines that belong together. Without enough room a table (`what` names its rows) is cut to
    `least` lines, then blocks with the lowest `rank` are dropped. `spaced`: an empty line before
    it."""

    lines: list[Text]
    rank: int
    spaced: bool = True
    what: str = ""
    least: int = 0


def blocks(found: FleetSnapshot, width: int, sort: str = "name") -> list[Block]:
    """Render everything but the problems for a terminal of this width."""
    plain = [Block(_traffic(found, width), rank=9), Block(_queues(found, width), rank=5)]
    for kind, rank, least in (("worker", 4, 4), ("gateway", 2, 3)):
        if rows := sorted(found.of(kind), key=SORTS[sort]):
            lines = grid(_COLUMNS[kind], [_process_row(one, found.at_ms) for one in rows], width)
            plain.append(Block(lines, rank, what=f"{kind}s", least=min(least, len(lines))))
    last = []
    for label, facts in (
        ("models", _models(found)),
        ("tools", _tools(found.of("worker"))),
        ("replies", _outboxes(found)),
        ("dead", _dead_letters(found)),
    ):
        if facts:  # without news they may be dropped: problems are listed above as well
            news = any(span.style in (WARNING, WRONG) for one in facts for span in one.spans)
            last.append(Block(flow(label, facts, width), rank=3 if news else 0))
    last.append(Block(flow("redis", _redis(found), width), rank=6))
    return [*plain, last[0], *(block._replace(spaced=False) for block in last[1:])]


def render_problems(wrong: Sequence[Problem], width: int) -> list[Text]:
    """Render problems in red."""
    return [line for problem in wrong for line in wrapped(f"! {problem.text}", WRONG, width)]


def summary(wrong: Sequence[Problem]) -> Text:
    """Render the headline."""
    if not wrong:
        return Text("all is well", style="bold green")
    count = "1 thing is" if len(wrong) == 1 else f"{len(wrong)} things are"
    return Text(f"{count} wrong", style=WRONG)


def _traffic(found: FleetSnapshot, width: int) -> list[Text]:
    turns = found.queues[0]
    totals = aggregate(found.processes)
    oldest = fact(
        brief(turns.oldest_due_s),
        _level(turns.oldest_due_s, WAIT_LIMITS_S["turns"]),
        name="oldest waits",
    )
    waiting = [oldest, fact(f"{turns.due:,}", after="wait")]
    people = waiting if turns.due else [fact("nobody", after="waits")]
    rates = [
        fact(_rate(totals.accepted_per_s), after="in"),
        fact(_rate(totals.ended_per_s), after="ended"),
        fact(_rate(totals.failed_per_s), WRONG if totals.failed_per_s else "", after="failed"),
        fact(_rate(totals.refused_per_s), WARNING if totals.refused_per_s else "", after="refused"),
    ]
    times = [
        _times("first text", totals.first_token),
        _times("turn", totals.turn),
        _times("answer", totals.answer),
    ]
    workers = found.of("worker")
    gateways = found.of("gateway")
    slots = sum(one.slots for one in workers)
    busy = sum(one.running for one in workers)
    fleet = [
        _process_count(workers, "worker"),
        fact(f"{busy:,} of {slots:,}", WARNING if 0 < slots <= busy else "", after="slots"),
        _process_count(gateways, "gateway"),
        fact(f"{sum(map(_sockets, gateways)):,}", after="sockets"),
    ]
    versions = Counter(one.version for one in found.processes)
    if len(versions) > 1:  # an update is running, or a process was forgotten
        each = (f"{version} ({count})" for version, count in sorted(versions.items()))
        fleet.append(fact(", ".join(each), WARNING, name="releases"))
    return [
        *flow("people", [*people, fact(f"{turns.running:,}", after="run")], width),
        *flow("a second", rates, width),
        *flow("p50/p95", times, width),
        *flow("fleet", fleet, width),
    ]


def _queues(found: FleetSnapshot, width: int) -> list[Text]:
    titles = {"queue": 9, "due": 9, "running": 8, "delayed": 6, "oldest waits": 9}
    columns = [Column(title, keep, right=title != "queue") for title, keep in titles.items()]
    rows = []
    for one in found.queues:
        oldest = Cell(brief(one.oldest_due_s), _level(one.oldest_due_s, WAIT_LIMITS_S[one.name]))
        counts = (Cell(f"{count:,}") for count in (one.due, one.running, one.delayed))
        rows.append([Cell(one.name), *counts, oldest if one.due else Cell("-")])
    return grid(columns, rows, width)


def _process_row(one: Presence, now_ms: int) -> list[Cell]:
    stats = one.stats
    details = one.details
    addresses = [value for name, value in details.items() if name.endswith(".address")]
    cells = {
        one.kind: Cell(one.name),
        "host": Cell(one.host),
        "state": Cell("draining", WARNING) if one.draining else Cell("ready"),
        "runs": Cell(str(one.running)),
        "sockets": Cell(f"{_sockets(one):,}"),
        "up": Cell(" ".join(duration((now_ms - one.started_at) / 1000).split()[:2])),
        "version": Cell(one.version),
        "address": Cell(addresses[0] if addresses else ""),
        "pid": Cell(str(one.pid)),
    }
    if one.slots:
        full = WARNING if one.slots <= one.running else ""
        cells["runs"] = Cell(f"{one.running} of {one.slots}", full)
    if stats is not None:
        cells["turns/s"] = Cell(_rate(stats.ended_per_s))
        cells["in/s"] = Cell(_rate(stats.accepted_per_s))
        cells["memory"] = Cell(size(stats.memory_bytes) if stats.memory_bytes else "")
        cells["late"] = Cell(brief(stats.lag_s), _level(stats.lag_s, LAG_LIMIT_S, LAG_WARNING_S))
    # The other columns are details, by their names.
    titles = [column.title for column in _COLUMNS[one.kind]]
    return [cells.get(title, Cell(details.get(title, ""))) for title in titles]


def _models(found: FleetSnapshot) -> list[Text]:
    """Render the models that workers use, with the state of their provider routes."""
    routes = {way.route: way for way in found.provider_routes}
    by_name: dict[str, RouteReading | None] = {}
    for one in found.of("worker"):
        if usual := one.details.get("model", ""):
            by_name.setdefault(usual, None)
        by_name |= {model: routes.get(way) for model, way in one.provider_routes.items()}
    facts = [fact(*_route_state(route), name=name) for name, route in sorted(by_name.items())]
    if found.model_waits:
        facts.append(fact(counted(found.model_waits, "turn waits", "turns wait"), WARNING))
    return facts


def _route_state(route: RouteReading | None) -> tuple[str, str]:
    match route:
        case RouteReading(state="closed"):
            return f"closed for {brief(route.wait_s)} ({route.why})", WRONG
        case RouteReading(state="trying"):
            return f"trying again ({route.why})", WARNING
        case RouteReading(refused=True):
            return "key refused", WRONG
        case RouteReading(faults=faults) if faults:
            return f"{counted(faults, 'fault')} in a row", WARNING
        case _:
            return "ok", ""


def _tools(workers: Sequence[Presence]) -> list[Text]:
    """Render MCP servers as the workers report them."""
    details = (item for one in workers for item in one.details.items())
    seen = Counter((name, state) for name, state in details if name.startswith("mcp."))
    facts = []
    for (name, state), count in sorted(seen.items()):
        text = state if count == len(workers) else f"{state} at {count} of {len(workers)}"
        style = WARNING if state.startswith("away") else ""
        facts.append(fact(text, style, name=name.removeprefix("mcp.")))
    return facts


def _outboxes(found: FleetSnapshot) -> list[Text]:
    """Render undelivered replies by channel."""
    facts = []
    for one in found.outboxes:
        waiting = f"{one.waiting:,} wait, the oldest {brief(one.oldest_s)}"
        text = waiting if one.waiting else "nothing waits"
        facts.append(fact(text, _level(one.oldest_s, OUTBOX_LIMIT_S), name=one.channel))
    return facts


def _dead_letters(found: FleetSnapshot) -> list[Text]:
    if not found.dead_letters:
        return [fact("no letters")]
    facts = [fact(counted(found.dead_letters, "letter"), WARNING)]
    letter = found.newest_letter
    if letter is not None:
        age_s = max(0, found.at_ms - letter.at_ms) / 1000
        facts.append(fact(f"{brief(age_s)} ago ({letter.reason})", name="the newest"))
    return [*facts, fact("", after="`shoal dead list`")]


def _redis(found: FleetSnapshot) -> list[Text]:
    facts = found.redis
    used = facts.used_bytes
    limit = facts.limit_bytes
    appends = facts.append_only
    full = limit and used and used > MEMORY_LIMIT * limit
    kept = f"fsync {facts.fsync or '?'}" if appends else "not persistent"
    lost = appends is False or facts.writes_ok is False or facts.fsync not in (None, "always")
    evicts = facts.policy not in (None, "noeviction")
    counts = (
        (facts.clients, "clients", ""),
        (facts.commands_per_s, "commands/s", ""),
        (facts.evicted_keys or None, "evicted", WRONG),
    )
    return [
        fact(f"{facts.product} {facts.version}"),
        fact(
            "?" if used is None else size(used),
            WRONG if full else "",
            after=f"of {size(limit)}" if limit else "in use",
        ),
        fact(facts.policy or "policy unknown", WRONG if evicts else ""),
        fact("persistence unknown" if appends is None else kept, WRONG if lost else ""),
        *(fact(f"{count:,}", style, after=what) for count, what, style in counts if count is not None),
        fact(brief(facts.ping_s), _level(facts.ping_s, 0.25, 0.05), name="answers in"),
    ]


def _times(name: str, times: DurationQuantiles) -> Text:
    if times.p50_s is None or times.p95_s is None:
        return fact("-", name=name)
    return fact(f"{brief(times.p50_s)} / {brief(times.p95_s)}", name=name)


def _process_count(processes: Sequence[Presence], kind: str) -> Text:
    draining = sum(one.draining for one in processes)
    text = counted(len(processes), kind)
    if draining:
        return fact(f"{text}, {draining} draining", WARNING)
    return fact(text, "" if processes else WRONG)


def _sockets(one: Presence) -> int:
    counts = [value for name, value in one.details.items() if name.endswith(".sockets")]
    return sum(int(count) for count in counts if count.isdigit())


def _rate(per_s: float) -> str:
    if not per_s:
        return "0"
    if per_s >= 99.95:
        return f"{per_s:,.0f}"
    return f"{per_s:.1f}" if per_s >= 0.05 else f"{per_s:.2f}"


def _level(value: float, wrong: float, warning: float | None = None) -> str:
    """Return the style of a value. Without `warning` a sixth of `wrong` is worth a warning."""
    warning = wrong / 6 if warning is None else warning
    return WRONG if value > wrong else WARNING if value > warning else ""
