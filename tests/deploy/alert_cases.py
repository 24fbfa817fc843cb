"""What makes each alert fire, what it then says, and what must leave it silent; series in promtool's notation."""

from __future__ import annotations

from typing import Final, NamedTuple

Series = dict[str, str]


class Case(NamedTuple):
    """After so many minutes of `fires` the alert is there with `labels` and says `says`; after `quiet` it is not. The
    series have a value every `step`."""

    alert: str
    minutes: int
    fires: Series
    says: str
    quiet: Series
    labels: dict[str, str] = {}
    step: str = "1m"


def answers(in_time: float, all: float, many: int) -> Series:
    """So many answers a minute, and so many of them in time."""
    return {
        'shoal_answer_seconds_bucket{outcome="done",le="60.0"}': f"0+{in_time}x{many}",
        'shoal_answer_seconds_count{outcome="done"}': f"0+{all}x{many}",
    }


def waits(in_time: float, all: float, many: int) -> Series:
    """So many turns a minute, and so many of them begun in time."""
    return {
        'shoal_queue_wait_seconds_bucket{queue="turns",le="5.0"}': f"0+{in_time}x{many}",
        'shoal_queue_wait_seconds_count{queue="turns"}': f"0+{all}x{many}",
    }


def buckets(histogram: str, labels: str, **values: str) -> Series:
    """The buckets of a histogram: `le_0_25="..."`."""
    bound = {name.removeprefix("le_").replace("_", "."): value for name, value in values.items()}
    return {f'{histogram}_bucket{{{labels}le="{"+Inf" if le == "inf" else le}"}}': v for le, v in bound.items()}


LOST: Final = "shoal_stale_writes_refused_total"
LATE: Final = 'shoal_lease_renew_late_total{instance="w1"}'
BUILD: Final = 'shoal_build_info{instance="w1",job="shoal-worker",version="1"}'
START: Final = 'process_start_time_seconds{instance="w1",job="shoal-worker"}'
BACK: Final = 'shoal_redis_reconnects_total{instance="w1",job="shoal-worker"}'
PLACES: Final = 'shoal_connection_places{instance="g1",who="stranger"}'
CUT: Final = 'shoal_connections_cut_total{instance="g1",listener="web",reason="full"}'
MAX_FILES: Final = 'process_max_fds{instance="w1",job="shoal-worker"}'
USED, LIMIT = "shoal_redis_memory_bytes", "shoal_redis_memory_limit_bytes"
OK: Final = 'shoal_model_requests_total{model="m",outcome="ok"}'
BAD: Final = 'shoal_model_requests_total{model="m",outcome="timeout"}'
DAYS: Final = 74 * 60
NOT_REPORTED: Final = "NaN " * 20
LAG, COMMAND = "shoal_event_loop_lag_seconds", "shoal_redis_command_seconds"

ROOM: Final = 'shoal_volume_room_bytes{{volume="{}",instance="{}"}}'

CASES: Final = (
    Case(
        "ShoalAnswersLate",
        70,
        answers(6, 10, 80),
        "40% of the answers of the last hour were late or apologies.",
        answers(8, 10, 80),
    ),
    Case(  # nothing but apologies, from the first minute on
        "ShoalAnswersLate",
        70,
        {'shoal_answer_seconds_count{outcome="failed"}': "0+10x80"},
        "100% of the answers of the last hour were late or apologies.",
        answers(0, 0.2, 80),  # so few that one slow answer would be the alert
    ),
    Case(
        "ShoalAnswersLateSlowly",
        400,
        answers(8, 10, 410),
        "20% of the answers of the last six hours were late or apologies.",
        answers(9, 10, 410),
    ),
    Case(
        "ShoalAnswersLateForDays",
        DAYS,
        answers(92, 100, DAYS),
        "8% of the answers of three days were late or apologies: more than the objective allows.",
        answers(96, 100, DAYS),
        step="4m",
    ),
    Case(
        "ShoalTurnsWait",
        70,
        waits(8, 10, 80),
        "20% of the turns of the last hour waited longer than 5 s for a worker.",
        waits(9, 10, 80),
    ),
    Case(
        "ShoalTurnsWaitSlowly",
        400,
        waits(9, 10, 410),
        "10% of the turns of the last six hours waited longer than 5 s for a worker.",
        waits(95, 100, 410),
    ),
    Case(
        "ShoalTurnsWaitForDays",
        DAYS,
        waits(98, 100, DAYS),
        "2% of the turns of three days waited longer than 5 s for a worker.",
        waits(995, 1000, DAYS),
        step="4m",
    ),
    Case(
        "ShoalOldestTurnWaits",
        4,
        {'shoal_queue_oldest_due_seconds{queue="turns"}': "0 10 40 100 160"},
        "Somebody waits for a worker since 2m 40s.",
        {'shoal_queue_oldest_due_seconds{queue="turns"}': "29x10"},
    ),
    Case(
        "ShoalOldestJobWaits",
        8,
        {'shoal_queue_oldest_due_seconds{queue="jobs"}': "400x10"},
        "Work for which nobody waits (jobs) is due since 6m 40s.",
        {'shoal_queue_oldest_due_seconds{queue="turns"}': "400x10"},
        {"queue": "jobs"},
    ),
    Case(
        "ShoalDeadLetters",
        22,
        {'shoal_dead_letters_total{reason="poison"}': "_x20 1x5"},
        "Given up in 15 minutes: 1 (poison).",
        {'shoal_dead_letters_total{reason="poison"}': "5x30"},
        {"reason": "poison"},
    ),
    Case(
        "ShoalManyDeadLetters",
        22,
        {'shoal_dead_letters_total{reason="auth"}': "_x20 25x5"},
        "25 messages got an apology in 15 minutes.",
        {'shoal_dead_letters_total{reason="auth"}': "_x20 19x5"},
    ),
    Case(
        "ShoalMessagesRefused",
        15,
        {
            'shoal_messages_refused_total{channel="web",reason="busy"}': "0+60x20",
            'shoal_messages_accepted_total{channel="web"}': "0+60x20",
        },
        "1 messages a second are refused: busy.",
        {
            'shoal_messages_refused_total{channel="web",reason="busy"}': "0+1x20",
            'shoal_messages_refused_total{channel="web",reason="too_big"}': "0+60x20",
            'shoal_messages_accepted_total{channel="web"}': "0+60x20",
        },
        {"reason": "busy"},
    ),
    Case(
        "ShoalRepliesWait",
        5,
        {'shoal_outbox_oldest_seconds{channel="telegram"}': "300 360 420 480 540 600"},
        "A reply is ready since 10m 0s and not delivered to telegram.",
        {'shoal_outbox_oldest_seconds{channel="telegram"}': "0 299 299 360 0 0 100"},
        {"channel": "telegram"},
    ),
    Case(
        "ShoalChannelOff",
        4,
        {'shoal_channel_on{channel="telegram",instance="a"}': "0x9"},
        "No gateway is connected to telegram.",
        {
            'shoal_channel_on{channel="telegram",instance="a"}': "0x9",
            'shoal_channel_on{channel="telegram",instance="b"}': "1x9",
        },
        {"channel": "telegram"},
    ),
    Case(
        "ShoalSendsUnknown",
        22,
        {'shoal_delivery_unknown_total{channel="telegram"}': "_x20 2x5"},
        "2 posts were sent to telegram again and may be there twice.",
        {'shoal_delivery_unknown_total{channel="telegram"}': "2x30"},
        {"channel": "telegram"},
    ),
    Case("ShoalNothingScraped", 4, {}, "Prometheus sees no process of Shoal.", {BUILD: "1x10"}),
    Case(  # one of two installations
        "ShoalNothingScraped",
        20,
        {'shoal_build_info{namespace="a"}': "1x40", 'shoal_build_info{namespace="b"}': "1x10 stale"},
        "Prometheus sees no process of Shoal.",
        {'shoal_build_info{namespace="a"}': "1x40", 'shoal_build_info{namespace="b"}': "1x40"},
        {"namespace": "b"},
    ),
    Case(  # neither hides the other, in both directions
        "ShoalNoWorkers",
        3,
        {
            'shoal_processes{kind="worker",namespace="a"}': "0x5",
            'shoal_processes{kind="worker",namespace="b"}': "1x5",
        },
        "No worker is there: nothing is answered.",
        {
            'shoal_processes{kind="worker",namespace="a"}': "2x5",
            'shoal_processes{kind="worker",namespace="b"}': "1x5",
        },
        {"namespace": "a"},
    ),
    Case(  # a busy installation does not raise the bar of a small one
        "ShoalMessagesRefused",
        15,
        {
            'shoal_messages_refused_total{namespace="a",reason="busy"}': "0+60x20",
            'shoal_messages_accepted_total{namespace="a"}': "0+60x20",
            'shoal_messages_accepted_total{namespace="b"}': "0+60000x20",
        },
        "1 messages a second are refused: busy.",
        {
            'shoal_messages_refused_total{namespace="a",reason="busy"}': "0+1x20",
            'shoal_messages_accepted_total{namespace="a"}': "0+60x20",
        },
        {"namespace": "a", "reason": "busy"},
    ),
    Case(  # nothing but apologies in one
        "ShoalAnswersLate",
        70,
        {
            'shoal_answer_seconds_count{namespace="a",outcome="failed"}': "0+10x80",
            'shoal_answer_seconds_bucket{namespace="b",outcome="done",le="60.0"}': "0+1000x80",
            'shoal_answer_seconds_count{namespace="b",outcome="done"}': "0+1000x80",
        },
        "100% of the answers of the last hour were late or apologies.",
        {
            'shoal_answer_seconds_bucket{namespace="b",outcome="done",le="60.0"}': "0+1000x80",
            'shoal_answer_seconds_count{namespace="b",outcome="done"}': "0+1000x80",
        },
        {"namespace": "a"},
    ),
    Case(
        "ShoalNoWorkers",
        3,
        {'shoal_processes{kind="worker"}': "0x5", 'shoal_processes{kind="gateway"}': "1x5"},
        "No worker is there: nothing is answered.",
        {'shoal_processes{kind="worker"}': "1x5"},
    ),
    Case(
        "ShoalNoGateways",
        3,
        {'shoal_processes{kind="gateway"}': "0x5"},
        "No gateway is there: nobody can write.",
        {'shoal_processes{kind="gateway"}': "1x5"},
    ),
    Case(
        "ShoalProcessDies",
        6,
        {START: "1 2 3 4 5 5 5", BUILD: "1x10"},
        "A process of shoal-worker was started 4 times in half an hour.",
        {'process_start_time_seconds{instance="n",job="node"}': "1 2 3 4 5 5 5", START: "1x10", BUILD: "1x10"},
        {"job": "shoal-worker"},
    ),
    Case(  # pods that are replaced: each has an address of its own, and lives for two minutes
        "ShoalProcessDies",
        12,
        {series.replace("w1", f"w{n}"): "0x2 stale" for n in range(4) for series in (START, BUILD)} | {BUILD: "1x20"},
        "A process of shoal-worker was started 4 times in half an hour.",
        {series.replace("w1", f"w{n}"): "0x9 stale" for n in range(4) for series in (START, BUILD)},
        {"job": "shoal-worker"},
    ),
    Case(
        "ShoalTakeovers",
        12,
        {'shoal_turn_takeovers_total{cause="crash"}': "_x5 8x20"},
        "8 turns were taken over from workers in 15 minutes.",
        {'shoal_turn_takeovers_total{cause="crash"}': "_x5 3x20"},
    ),
    Case("ShoalLeasesLost", 25, {LOST: "0+1x40"}, "15 turns ended without their lease in 15 minutes.", {LOST: "9x40"}),
    Case(
        "ShoalLeasesRenewedLate",
        25,
        {LATE: "0+1x40"},
        "w1 renewed its leases late 15 times in 15 minutes.",
        {LATE: "7x40"},
        {"instance": "w1"},
    ),
    Case(
        "ShoalEventLoopLate",
        15,
        buckets(LAG, 'instance="w1",', le_0_25="0x20", le_0_5="0+240x20", le_inf="0+240x20"),
        "The event loop of w1 is 487.5ms late.",
        buckets(LAG, 'instance="w1",', le_0_25="0+240x20", le_0_5="0+240x20", le_inf="0+240x20"),
        {"instance": "w1"},
    ),
    Case(
        "ShoalConnectionsCrowded",
        5,
        {'shoal_connections{instance="g1",who="stranger"}': "9x20", PLACES: "10x20"},
        "g1 has nearly as many connections or open files as it may.",
        {'shoal_connections{instance="g1",who="stranger"}': "7x20", PLACES: "10x20", CUT: "0+30x20"},
        {"instance": "g1"},
    ),
    Case(
        "ShoalConnectionsCrowded",
        10,
        {CUT: "0+120x20"},
        "g1 has nearly as many connections or open files as it may.",
        {'process_open_fds{instance="w1",job="shoal-worker"}': "700x20", MAX_FILES: "1024x20", BUILD: "1x20"},
        {"instance": "g1"},
    ),
    Case(
        "ShoalConnectionsCrowded",
        5,
        {'process_open_fds{instance="w1",job="shoal-worker"}': "900x20", MAX_FILES: "1024x20", BUILD: "1x20"},
        "w1 has nearly as many connections or open files as it may.",
        {'process_open_fds{instance="w1",job="other"}': "900x20"},
        {"instance": "w1"},
    ),
    Case(
        "ShoalRedisAway",
        2,
        {'shoal_redis_up{instance="a"}': "1x5", 'shoal_redis_up{instance="b"}': "0x5"},
        "Redis does not answer at least one process.",
        {'shoal_redis_up{instance="a"}': "1x5"},
    ),
    Case(
        "ShoalRedisComesAndGoes",
        25,
        {BACK: "0+1x40"},
        "A process of shoal-worker lost Redis 15 times in 15 minutes.",
        {BACK: "4x40"},
        {"job": "shoal-worker"},
    ),
    Case(
        "ShoalRedisMemory",
        7,
        {USED: "75x10", LIMIT: "100x10"},
        "Redis uses 75% of its memory.",
        {USED: "75x10", LIMIT: "0x10"},
    ),
    Case(
        "ShoalRedisMemoryFull",
        3,
        {USED: "95x10", LIMIT: "100x10"},
        "Redis uses 95% of its memory.",
        {USED: "89x10", LIMIT: "100x10"},
    ),
    Case(
        "ShoalRedisCannotWrite",
        1,
        {'shoal_redis_writes_ok{instance="a"}': "0x3", 'shoal_redis_writes_ok{instance="b"}': "1x3"},
        "Redis could not write its append-only file.",
        {'shoal_redis_writes_ok{instance="b"}': "1x3"},
    ),
    Case(
        "ShoalDiskFull",
        3,
        {ROOM.format("media", "a"): "-1x5", ROOM.format("media", "b"): "5x5", ROOM.format("workspaces", "a"): "9x5"},
        "The disk of the volume media is almost full: files are refused.",
        {ROOM.format("media", "a"): "0x5", ROOM.format("media", "b"): NOT_REPORTED},
        labels={"volume": "media"},
    ),
    Case(
        "ShoalRedisLossUnknown",
        32,
        {
            "shoal_redis_loss_window_seconds": "NaN " * 40,
            "shoal_redis_up": "1x40",
            'shoal_processes{kind="worker"}': "2x40",
        },
        "Redis does not tell how much of what it confirmed a crash may cost.",
        {
            'shoal_redis_loss_window_seconds{instance="g"}': "NaN " * 40,
            'shoal_redis_loss_window_seconds{instance="w"}': "0x40",
            "shoal_redis_up": "1x40",
            'shoal_processes{kind="worker"}': "2x40",
        },
    ),
    Case(
        "ShoalRedisMayForget",
        12,
        {
            'shoal_redis_loss_window_seconds{instance="a"}': "1x20",
            'shoal_redis_loss_window_seconds{instance="b"}': NOT_REPORTED,
        },
        "A crash of Redis may cost the last 1s of what it confirmed.",
        {
            'shoal_redis_loss_window_seconds{instance="a"}': "0x20",
            'shoal_redis_loss_window_seconds{instance="b"}': NOT_REPORTED,
        },
    ),
    Case(
        "ShoalKeyBroken",
        1,
        {'shoal_redis_keys_broken{instance="a"}': "2x3", 'shoal_redis_keys_broken{instance="b"}': "0x3"},
        "2 keys of the whole fleet are not of the type that Shoal gives them.",
        {'shoal_redis_keys_broken{instance="a"}': "0x3"},
    ),
    Case(
        "ShoalRedisRestartForgets",
        1,
        {
            'shoal_redis_restart_safe{instance="a"}': "0x3",
            'shoal_redis_restart_safe{instance="b"}': NOT_REPORTED,
        },
        "The next restart of Redis may forget nearly everything.",
        {
            'shoal_redis_restart_safe{instance="a"}': "1x3",
            'shoal_redis_restart_safe{instance="b"}': NOT_REPORTED,
        },
    ),
    Case(
        "ShoalClocksApart",
        4,
        {'shoal_redis_clock_ahead_seconds{instance="w1"}': "-90x9"},
        "The clocks of Redis and of w1 are 1m 30s apart.",
        {'shoal_redis_clock_ahead_seconds{instance="w1"}': "-0.9x9"},
        {"instance": "w1"},
    ),
    Case(
        "ShoalReplicaMissing",
        4,
        {'shoal_redis_short_writes_total{outcome="accepted",instance="w1"}': "0 0 5 9 12"},
        "Fewer servers have what is written than redis.copies wants; such writes are accepted.",
        {'shoal_redis_short_writes_total{outcome="accepted",instance="w1"}': "5x9"},
        {"outcome": "accepted"},
    ),
    Case(
        "ShoalClockFellBack",
        4,
        {'shoal_redis_clock_fell_back_total{instance="w1"}': "0 0 1 1 1"},
        "The clock of Redis fell back; what waited was moved.",
        {'shoal_redis_clock_fell_back_total{instance="w1"}': "1x9"},
    ),
    Case(
        "ShoalRedisSlow",
        15,
        buckets(COMMAND, "", le_0_1="0x20", le_0_25="0+60x20", le_inf="0+60x20"),
        "One of twenty commands takes longer than 242.5ms.",
        buckets(COMMAND, "", le_0_1="0+60x20", le_0_25="0+60x20", le_inf="0+60x20"),
    ),
    Case(
        "ShoalModelFails",
        15,
        {OK: "0+5x20", BAD: "0+5x20"},
        "50% of the model calls of ten minutes failed.",
        {OK: "0+9x20", BAD: "0+1x20"},
    ),
    Case("ShoalModelFails", 15, {BAD: "0+5x20"}, "100% of the model calls of ten minutes failed.", {BAD: "0+0.5x20"}),
    Case(
        "ShoalTurnsWaitForModel",
        9,
        {"shoal_turns_wait_for_model": "4x9"},
        "4 turns wait for a model that does not answer them.",
        {"shoal_turns_wait_for_model": "0 1 1 0 0 1 1 0 0"},  # a message that fails alone is given up before
    ),
    Case(
        "ShoalModelHeldBack",
        40,
        {'shoal_model_throttled_total{model="m",reason="overloaded"}': "0+1x60"},
        "15 model calls were held back in 15 minutes: overloaded.",
        {'shoal_model_throttled_total{model="m",reason="requests_per_minute"}': "0+1x60"},
        {"reason": "overloaded"},
    ),
    Case(
        "ShoalBudgetsReached",
        70,
        {'shoal_budgets_reached_total{budget="usd"}': "_x60 2x20"},
        "2 turns ended because their chat had used its budget of usd.",
        {'shoal_budgets_reached_total{budget="usd"}': "2x80"},
        {"budget": "usd"},
    ),
)
