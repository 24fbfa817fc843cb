"""The question whether a tool may run, on each platform: its card whole and unchanged, in one message, or not asked."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gateway.delivery.line_posts import fits_one_post
from shared.messages.transcript import ApprovalEntry
from shared.store.turns.approvals import number_lines, question_line
from tests.gateway.text.readers import READERS
from tests.gateway.text.shown import renderer
from tests.helpers.parked import QUESTION
from worker.guards.card import render_card

_PARTS = st.sampled_from(
    ["<b>", "&lt;", "`", "```", "```\n", "````", "\n", "\n\n", "~~~", "    ", "> ", "- ", "# ", "*a*", "_b_", "\\",
     "@everyone ", "<@123456789012345678>", "<!channel>", "<at id=all>", "http://a.b/c", "$x$", "|", "\t", "\u202e"]
)  # fmt: skip
_LINES = st.lists(_PARTS | st.text(max_size=5), min_size=1, max_size=20).map("".join)


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(_LINES, st.sampled_from(["exec", "send"]))
@example("a" * 3_000 + "\n" + "`" * 40, "exec")
def test_a_question_is_shown_as_it_is_or_not_asked(name: str, text: str, tool: str) -> None:
    """Nothing in it ends its block, is read as markup, or is left out."""
    card = render_card(tool, {"command": text, "timeout_s": 1.0})
    asked = question_line(question_of(tool, card), wait_s=600)
    if not fits_one_post(asked, renderer(name)):
        assert len(card) > 1_000
        return
    [piece] = renderer(name)(asked.content)
    assert number_lines(card) in READERS[name](piece.text)


def question_of(tool: str, card: str) -> ApprovalEntry:
    return replace(QUESTION, tool=tool, arguments=card, sources=("evil.example", "mail of `x`"))
