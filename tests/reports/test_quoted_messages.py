"""The message that another one answers is read above the new words, and so is who wrote what is passed on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from gateway.channels.feishu.contents import quoted_text
from gateway.channels.matrix.parse import answered_quote, parse_event, summarize_event
from gateway.channels.slack.wire import Message, read_message
from gateway.platform.protocol import PlatformMessage
from gateway.text.quotes import QUOTE_CHARS, Quote, with_quote
from tests.gateway.channels.discord.events import gateway_event
from tests.gateway.channels.matrix import test_parse as matrix
from tests.gateway.channels.slack.payloads import HEARING, in_channel, posted_message
from tests.gateway.channels.slack.payloads import message as slack_message
from tests.gateway.channels.telegram import test_parse as telegram

REPORT: Final = json.loads(Path("tests/data/reports/c-reply-context.json").read_text())
BOB: Final = {"id": 5, "is_bot": False, "first_name": "Bob"}
US: Final = {"id": 123456789, "is_bot": True, "first_name": "Shoal"}


def on_telegram(answered: dict[str, Any] | None, text: str = "explain", **more: Any) -> PlatformMessage | None:
    earlier = {"message_id": 3, "date": 1, "chat": telegram.GROUP, "from": BOB, **(answered or {})}
    return telegram.parse({"text": text, **({"reply_to_message": earlier} if answered is not None else {}), **more})


def on_discord(answered: dict[str, Any], **more: Any) -> PlatformMessage | None:
    earlier = {"id": "3", "author": {"id": "8", "username": "bob"}, **answered}
    return gateway_event(content="explain", type=19, referenced_message=earlier, **more)


def on_matrix(content: dict[str, Any], sender: str = "@bob:pond.example") -> PlatformMessage | None:
    answered = summarize_event(matrix.event(content, sender=sender))
    quote = answered_quote(answered, matrix.ANNA, matrix.GROUP, matrix.ME)
    now = matrix.event(matrix.text("explain"))
    return parse_event("matrix", matrix.ROOM, now, matrix.GROUP, matrix.ME, quote=quote)


def on_slack(root: dict[str, Any], **more: Any) -> PlatformMessage | None:
    found: Message | None = read_message({"ts": "1695223000.000100", "user": "U5", **root})
    assert found is not None
    reply = posted_message(in_channel("<@U0SHOAL> explain", thread_ts="1695223000.000100", **more))
    return HEARING.quote_root(found, reply)


NEWS: Final = {"id": -5, "type": "channel", "title": "News"}
LETTER: Final = {"file_id": "d", "file_name": "letter.pdf"}
QUOTED: Final[dict[str, tuple[Callable[[], PlatformMessage | None], str]]] = {
    "telegram: the report": (lambda: telegram.parse(REPORT["telegram"]["message"]), "Python 3.12"),
    "telegram: a whole message": (lambda: on_telegram({"text": "Version 2"}), "Version 2"),
    "telegram: a caption": (lambda: on_telegram({"photo": [{"file_id": "x"}], "caption": "a pond"}), "a pond"),
    "telegram: a file": (lambda: on_telegram({"document": LETTER}), "[file: letter.pdf]"),
    "telegram: a poll": (lambda: on_telegram({"poll": {"question": "When?"}}), "[poll: When?]"),
    "telegram: a chat elsewhere": (
        lambda: on_telegram(None, quote={"text": "from afar"}, external_reply={"origin": {"chat": NEWS}}), "from afar",
    ),
    "discord: the report": (lambda: gateway_event(**REPORT["discord"]), "Version 2 needs 3.12"),
    "discord: a text": (lambda: on_discord({"content": "Version 2"}), "Version 2"),
    "discord: an embed": (lambda: on_discord({"embeds": [{"type": "rich", "title": "CI"}]}), "CI"),
    "discord: a file": (lambda: on_discord({"attachments": [{"url": "http://x/y", "filename": "a.png"}]}), "a.png"),
    "discord: a forward": (
        lambda: on_discord({"message_snapshots": [{"message": {"content": "passed on"}}]}), "passed on",
    ),
    "matrix: a text": (lambda: on_matrix(matrix.text("Version 2")), "Version 2"),
    "matrix: an answer of the old form": (lambda: on_matrix(matrix.text("> <@a:b> x\n\nVersion 2")), "Version 2"),
    "matrix: a file": (
        lambda: on_matrix({"msgtype": "m.file", "body": "a.pdf", "url": "mxc://a/b"}), "[file: a.pdf]",
    ),
    "slack: the first message of a thread": (lambda: on_slack({"text": "Version &lt;2"}), "Version <2"),
    "slack: a thread below an app's blocks": (
        lambda: on_slack({"blocks": [{"type": "section", "text": {"type": "mrkdwn", "text": "Failed"}}]}), "Failed",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", QUOTED)
def test_what_a_message_answers_is_read_above_its_words(name: str) -> None:
    make, words = QUOTED[name]
    found = make()
    assert found is not None
    quote, _, new = found.message.content.rpartition("\n\n")
    assert quote.startswith("[quoted from ")
    assert any(line.startswith("> ") and words in line for line in quote.splitlines())
    assert new in ("explain", "what about this?")


STRANGE: Final[dict[str, tuple[Callable[[], PlatformMessage | None], bool]]] = {
    "another person on Telegram": (lambda: on_telegram({"text": "x"}), True),
    "the bot on Telegram": (lambda: on_telegram({"text": "x", "from": US}), False),
    "oneself on Telegram": (lambda: on_telegram({"text": "x", "from": telegram.ANNA}), False),
    "one's own forward on Telegram": (
        lambda: on_telegram({"text": "x", "from": telegram.ANNA, "forward_origin": {"sender_user_name": "Eve"}}), True,
    ),
    "a channel on Telegram": (
        lambda: on_telegram({"text": "x", "sender_chat": {"id": -5, "type": "channel", "title": "News"}}), True,
    ),
    "another person on Discord": (lambda: on_discord({"content": "x"}), True),
    "the bot on Discord": (lambda: on_discord({"content": "x", "author": {"id": "123456789012345678"}}), False),
    "another person on Matrix": (lambda: on_matrix(matrix.text("x")), True),
    "the bot on Matrix": (lambda: on_matrix(matrix.text("x"), matrix.ME), False),
    "another person on Slack": (lambda: on_slack({"text": "x"}), True),
    "oneself on Slack": (lambda: on_slack({"text": "x", "user": "U2147483697"}), False),
}  # fmt: skip


@pytest.mark.parametrize("name", STRANGE)
def test_a_quote_of_others_marks_the_message(name: str) -> None:
    make, strange = STRANGE[name]
    found = make()
    assert found is not None
    assert found.forwarded == strange


def test_a_forwarded_message_says_who_wrote_it() -> None:
    """By each of the four kinds of origin that Telegram has."""
    chat = {"id": -5, "type": "channel", "title": "News"}
    origins = ({"sender_user": BOB}, {"sender_user_name": "Bob"}, {"chat": chat}, {"sender_chat": chat})
    found = [telegram.sure(telegram.parse({"text": "hi", "forward_origin": {"type": "", **one}})) for one in origins]
    names = ("Bob", "Bob", "News", "News")
    assert [one.message.content for one in found] == [f"[forwarded from {name}]\nhi" for name in names]


def test_a_command_stays_one_and_a_long_quote_is_shortened() -> None:
    assert with_quote("/yes ab", Quote("May I?")) == "/yes ab"
    assert with_quote("why?", Quote(" \n")) == "why?"
    long = with_quote("why?", Quote("x" * 5000, "A ] b\n"))
    assert long == f"[quoted from A b]\n> {'x' * QUOTE_CHARS}…\n\nwhy?"
    assert with_quote("why?", Quote("a\n[b]\u2028c")) == "[quoted from somebody]\n> a\n> [b]\n> c\n\nwhy?"


def test_the_first_message_of_a_thread_is_not_quoted_when_it_was_for_us() -> None:
    found = on_slack({"text": "<@U0SHOAL> look at this"})
    assert found is not None
    assert found.message.content == "explain"
    alone = posted_message(slack_message("explain", thread_ts="1695223000.000100"))
    root = read_message({"ts": "1695223000.000100", "user": "U0SHOAL", "text": "good morning"})
    assert root is not None
    assert HEARING.quote_root(root, alone).message.content == "[quoted from shoal]\n> good morning\n\nexplain"


def test_feishu_quotes_texts_and_files() -> None:
    assert quoted_text("text", json.dumps({"text": "Version 2"})) == "Version 2"
    assert quoted_text("file", json.dumps({"file_key": "k", "file_name": "a.pdf"})) == "[file: a.pdf]"


BEFORE: Final = {
    "test_what_a_message_answers_is_read_above_its_words": 0,
    "test_a_forwarded_message_says_who_wrote_it": 0,
    "test_a_quote_of_others_marks_the_message": 5,
}
