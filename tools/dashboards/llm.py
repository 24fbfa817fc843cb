"""Calls of models, and what they cost."""

from __future__ import annotations

from typing import Final

from tools.dashboards.panels import RATE, Board, Panel, Query, Row, number, rate_by, slow_by

MODELS: Final = Board(
    "shoal-models",
    "Shoal: models and cost",
    "What models were asked, what they took, what they cost.",
    (
        Row(
            "Calls",
            (
                number(
                    "Failed, last hour",
                    "percentunit",
                    "max(shoal:model_failures:ratio_rate1h)",
                    "Calls that failed after their retries and fallbacks.",
                    warn=0.02,
                    bad=0.2,
                ),
                number(
                    "Cost, last 24 h",
                    "currencyUSD",
                    "sum(increase(shoal_model_cost_usd_total[1d]))",
                    "As far as prices are known.",
                ),
                Panel(
                    "Calls",
                    "ops",
                    rate_by("shoal_model_requests_total", "model", "outcome"),
                    "Once each, whatever was retried.",
                    width=16,
                ),
                Panel(
                    "Slow calls", "s", slow_by("shoal_model_seconds", "model"), "95 % were quicker, to the last token."
                ),
                Panel(
                    "Held back",
                    "ops",
                    rate_by("shoal_model_throttled_total", "model", "reason"),
                    "`rate_limit` and `overloaded`: the breaker is open for the whole fleet.",
                ),
                Panel(
                    "Unusual answers",
                    "ops",
                    rate_by("shoal_model_bad_replies_total", "model", "field"),
                    "By the field that had another form than the protocol gives it. Most are read all the same.",
                ),
                Panel(
                    "Answers continued",
                    "ops",
                    (
                        *rate_by("shoal_turns_continued_total", "reason"),
                        Query(f"sum(rate(shoal_turns_continued_characters_total[{RATE}]))", "characters kept"),
                    ),
                    "A worker died (`worker`), or a model's stream broke (`stream`): the rest is asked for.",
                ),
                Panel(
                    "Budgets reached",
                    "ops",
                    rate_by("shoal_budgets_reached_total", "budget"),
                    "Turns that ended because their chat had used its day.",
                ),
            ),
        ),
        Row(
            "Use",
            (
                Panel(
                    "Tokens",
                    "short",
                    (
                        *rate_by("shoal_model_tokens_total", "model", "direction"),
                        Query(
                            f"sum(rate(shoal_model_tokens_estimated_total[{RATE}])) or vector(0)",
                            "estimated",
                        ),
                    ),
                    "A second. Estimated are those that no provider has counted.",
                    width=12,
                ),
                Panel(
                    "Cost of a day",
                    "currencyUSD",
                    (
                        Query("sum by (model) (increase(shoal_model_cost_usd_total[1d]))", "{{model}}"),
                        Query("$budget + 0 * max(shoal_build_info)", "budget"),
                    ),
                    "Of 24 hours, beside what a day may cost: you set it at the top of this page.",
                    width=12,
                    alert="ShoalBudgetsReached",
                ),
                Panel(
                    "First token",
                    "s",
                    slow_by("shoal_model_first_token_seconds", "model"),
                    "95 % were quicker, from the request to the reply's first text.",
                    width=12,
                ),
                Panel(
                    "Cost an hour",
                    "currencyUSD",
                    (Query(f"3600 * sum by (model) (rate(shoal_model_cost_usd_total[{RATE}]))", "{{model}}"),),
                    "At the present pace. A model without a known price has no line.",
                    width=12,
                ),
            ),
        ),
    ),
)
