"""Text that a platform sends only in blocks, attachments, embeds, cards, polls or checklists is read, a line each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from tests.gateway.channels.discord.events import gateway_event, sure
from tests.gateway.channels.slack.payloads import message as slack_message
from tests.gateway.channels.slack.payloads import posted_message
from tests.gateway.channels.telegram import test_parse as telegram

REPORT: Final = json.loads(Path("tests/data/reports/c-slack-blocks.json").read_text())


def rich(*elements: dict[str, Any]) -> dict[str, Any]:
    return {"blocks": [{"type": "rich_text", "elements": list(elements)}]}


def section(*elements: dict[str, Any], kind: str = "rich_text_section") -> dict[str, Any]:
    return {"type": kind, "elements": list(elements)}


def word(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


LIST: Final = section(section(word("one")), section(word("two")), kind="rich_text_list")
LINK: Final = {"type": "link", "url": "https://example.org", "text": "pond"}
CELLS: Final = [[{"type": "raw_text", "text": "a"}, {"type": "rich_text", "elements": [section(word("b"))]}]]
FIELDS: Final = [{"title": "Branch", "value": "main"}]
SLACK: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "the report, blocks": (REPORT["events"][0], "only in blocks"),
    "the report, an attachment": (REPORT["events"][1], "CI\nBuild failed"),
    "marks of text": (rich(section(word("a < b & c"))), "a < b & c"),
    "a list": (rich(LIST), "- one\n- two"),
    "a quote": (rich(section(word("one\ntwo"), kind="rich_text_quote")), "> one\n> two"),
    "code": (rich(section(word("x = 1"), kind="rich_text_preformatted")), "```\nx = 1\n```"),
    "a link": (rich(section(LINK)), "pond (https://example.org)"),
    "an emoji and a person": (
        rich(section({"type": "emoji", "name": "fish"}, word(" "), {"type": "user", "user_id": "U5"})), ":fish: @U5",
    ),
    "a section": ({"blocks": [{"type": "section", "text": {"type": "mrkdwn", "text": "<!here> up"}}]}, "@here up"),
    "fields": ({"blocks": [{"type": "section", "fields": [word("a"), word("b")]}]}, "a\nb"),
    "a header": ({"blocks": [{"type": "header", "text": {"type": "plain_text", "text": "News"}}]}, "News"),
    "a context": ({"blocks": [{"type": "context", "elements": [{"type": "mrkdwn", "text": "by CI"}]}]}, "by CI"),
    "a picture": ({"blocks": [{"type": "image", "alt_text": "a pond", "image_url": "x"}]}, "a pond"),
    "markdown": ({"blocks": [{"type": "markdown", "text": "# News"}]}, "# News"),
    "a table": ({"blocks": [{"type": "table", "rows": CELLS}]}, "a | b"),
    "fields of an attachment": ({"attachments": [{"pretext": "CI", "fields": FIELDS}]}, "CI\nBranch: main"),
    "blocks of an attachment": ({"attachments": [{"blocks": rich(section(word("x")))["blocks"]}]}, "x"),
    "only a fall back": ({"attachments": [{"fallback": "Build failed"}]}, "Build failed"),
    "odd ones": ({"blocks": [None, 5, {"type": "new", "text": word("x")}, {"elements": {"a": 1}}]}, "x"),
}  # fmt: skip


@pytest.mark.parametrize("name", SLACK)
def test_text_in_blocks_and_attachments_of_slack_is_read(name: str) -> None:
    sent, text = SLACK[name]
    assert posted_message(slack_message("") | sent).message.content == text


def test_blocks_that_repeat_the_text_are_not_read_twice() -> None:
    blocks = rich(section(word("see "), LINK, word(" & go")), LIST)
    text = "see <https://example.org|pond> &amp; go\n• one\n• two"
    found = posted_message(slack_message(text, **blocks))
    assert found.message.content == "see pond (https://example.org) & go\n• one\n• two"


EMBED: Final = {
    "type": "rich", "title": "CI", "description": "failed", "fields": [{"name": "Branch", "value": "main"}],
    "author": {"name": "Bot"}, "footer": {"text": "now"},
}  # fmt: skip
POLL: Final = {"question": {"text": "When?"}, "answers": [{"poll_media": {"text": "now"}}, {"poll_media": {}}]}
DISCORD: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "an embed": ({"embeds": [EMBED]}, "Bot\nCI\nfailed\nBranch: main\nnow"),
    "a preview alone": ({"embeds": [{"type": "article", "title": "Ponds"}]}, "Ponds"),
    "a preview of a link": (
        {"content": "https://example.org", "embeds": [{"type": "article", "title": "x"}]}, "https://example.org",
    ),
    "a poll": ({"poll": POLL}, "[poll: When?]\n- now"),
    "components": ({"components": [{"type": 17, "components": [{"type": 10, "content": "hi"}]}]}, "hi"),
    "a forwarded embed": ({"message_snapshots": [{"message": {"embeds": [{"title": "CI"}]}}]}, "CI"),
    "null where it is optional": ({"content": "x", "embeds": None, "mentions": None, "attachments": None}, "x"),
    "odd ones": ({"content": "x", "embeds": [5, {"fields": {"name": 3}}], "poll": []}, "x"),
}  # fmt: skip


@pytest.mark.parametrize("name", DISCORD)
def test_text_in_embeds_polls_and_components_of_discord_is_read(name: str) -> None:
    sent, text = DISCORD[name]
    assert sure(gateway_event(**{"content": "", **sent})).message.content == text


PLACE: Final = {"latitude": 52.5, "longitude": 13.4}
TASKS: Final = [{"id": 1, "text": "milk", "completion_date": 5}, {"id": 2, "text": "bread"}]
TELEGRAM: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "a poll": ({"poll": {"question": "When?", "options": [{"text": "now"}]}}, "[poll: When?]\n- now"),
    "a quiz": ({"poll": {"question": "1+1?", "explanation": "count"}}, "[poll: 1+1?]\ncount"),
    "a checklist": ({"checklist": {"title": "Buy", "tasks": TASKS}}, "[checklist: Buy]\n- [x] milk\n- [ ] bread"),
    "a place": (
        {"venue": {"title": "Café", "address": "Main St", "location": PLACE}, "location": PLACE},
        "[place: Café, Main St]\n[location: 52.5, 13.4]",
    ),
    "a game": ({"game": {"title": "Snake", "description": "eat"}}, "[game: Snake]\neat"),
    "an invoice": ({"invoice": {"title": "Tea", "description": "hot"}}, "[invoice: Tea]\nhot"),
    "a die": ({"dice": {"emoji": "🎲", "value": 4}}, "[🎲: 4]"),
    "a story": ({"story": {"id": 1}}, "[story]"),
    "null where it is optional": ({"text": "x", "caption": None, "entities": None, "photo": None}, "x"),
}


@pytest.mark.parametrize("name", TELEGRAM)
def test_polls_checklists_and_places_of_telegram_are_read(name: str) -> None:
    sent, text = TELEGRAM[name]
    assert telegram.sure(telegram.parse(sent)).message.content == text


BEFORE: Final = {
    "test_text_in_blocks_and_attachments_of_slack_is_read": 0,
    "test_blocks_that_repeat_the_text_are_not_read_twice": 1,
    "test_text_in_embeds_polls_and_components_of_discord_is_read": 2,
    "test_polls_checklists_and_places_of_telegram_are_read": 0,
}
