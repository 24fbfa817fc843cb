"""Null where a platform's documentation has an optional field reads as if the field were missing."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import pytest

from gateway.platform.nulls import without_nulls
from gateway.platform.protocol import PlatformMessage
from tests.gateway.channels.discord.events import gateway_event
from tests.gateway.channels.feishu import test_parse as feishu
from tests.gateway.channels.feishu.events import message as feishu_message
from tests.gateway.channels.matrix import test_parse as matrix
from tests.gateway.channels.slack.payloads import message as slack_message
from tests.gateway.channels.slack.payloads import posted_message
from tests.gateway.channels.telegram import test_parse as telegram
from tests.gateway.channels.whatsapp import test_parse as whatsapp


def feishu_nulls(body: bytes) -> bytes:
    sent = json.loads(body)
    sent["event"]["message"] |= {"parent_id": None, "mentions": None, "root_id": None}
    return json.dumps({**sent, "type": None, "challenge": None}).encode()


NULLS: Final[dict[str, Callable[[], PlatformMessage | None]]] = {
    "telegram: of a list": lambda: telegram.parse({"text": "hi", "entities": None, "photo": None}),
    "telegram: of a text": lambda: telegram.parse({"text": "hi", "caption": None}),
    "telegram: of a person": lambda: telegram.parse({"text": "hi", "from": {**telegram.ANNA, "last_name": None}}),
    "discord: of a list": lambda: gateway_event(content="hi", sticker_items=None, attachments=None),
    "discord: of a file": lambda: gateway_event(content="hi", attachments=[{"url": "http://x/y", "filename": None}]),
    "matrix: of a text": lambda: matrix.parse(matrix.text("hi", formatted_body=None, filename=None)),
    "matrix: of a relation": lambda: matrix.parse(matrix.text("hi", **{"m.relates_to": {"rel_type": None}})),
    "slack: of a type": lambda: posted_message(slack_message("hi", edited=None, files=[None], attachments=None)),
    "slack: of a list": lambda: posted_message(slack_message("hi"), authorizations=[{"user_id": None}, None]),
    "whatsapp: of a mark": lambda: whatsapp.one({"text": {"body": "hi"}, "context": {"forwarded": None}}),
    "feishu: of texts and lists": lambda: feishu.received(feishu_nulls(feishu_message({"text": "hi"}))),
}


@pytest.mark.parametrize("name", NULLS)
def test_null_reads_as_missing(name: str) -> None:
    found = NULLS[name]()
    assert found is not None
    assert found.message.content == "hi"


def test_other_values_stay() -> None:
    plain: dict[str, Any] = {"a": None, "b": [None, 0, "", {"c": None}], "d": False}
    assert without_nulls(plain) == {"b": [0, "", {}], "d": False}


BEFORE: Final = {"test_null_reads_as_missing": 1}
