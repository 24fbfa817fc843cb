"""People of WhatsApp who are known by an id instead of a number, and messages that cannot be read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from gateway.channels.whatsapp.outgoing import text_message
from gateway.channels.whatsapp.parse import ParsedCall, read_call
from gateway.platform.protocol import Piece, Post, PostTarget
from tests.gateway.channels.whatsapp.test_parse import ANNA, NUMBER, body, value

REPORT: Final = json.loads(Path("tests/data/reports/c-whatsapp-user-name.json").read_text())
ID: Final = "US.13491208655302741918"
HI: Final = {"id": "wamid.1", "timestamp": "1700000000", "type": "text", "text": {"body": "hi"}}


def read(message: dict[str, Any], *contacts: Any) -> ParsedCall:
    return read_call("whatsapp", body(value({**HI, **message}, contacts=list(contacts))), NUMBER)


def profile(name: str | None = "A Person", **ids: Any) -> dict[str, Any]:
    return {"profile": {"name": name, "username": "@person"}, **ids}


PEOPLE: Final[dict[str, tuple[dict[str, Any], dict[str, Any], str, str]]] = {
    "an id alone": ({"from_user_id": ID}, profile(user_id=ID), ID, "A Person"),
    "an id of a business": ({"from_user_id": "US.ENT.11815799212886844830"}, {}, "US.ENT.11815799212886844830", ""),
    "an id of letters": ({"from_user_id": "BR.1a2B"}, {}, "BR.1a2B", ""),
    "an id in the number's field": ({"from": ID}, profile(user_id=ID), ID, "A Person"),
    "a number beside it": ({"from": ANNA, "from_user_id": ID}, profile(wa_id=ANNA, user_id=ID), ANNA, "A Person"),
    "the name by the other id": ({"from": ANNA, "from_user_id": ID}, profile(user_id=ID), ANNA, "A Person"),
    "an empty number": ({"from": "", "from_user_id": ID}, profile(wa_id="", user_id=ID), ID, "A Person"),
    "null as the number": ({"from": None, "from_user_id": ID}, profile(wa_id=None, user_id=ID), ID, "A Person"),
    "null as the id": ({"from": ANNA, "from_user_id": None}, profile(wa_id=ANNA, user_id=None), ANNA, "A Person"),
    "a user name alone": ({"from_user_id": ID}, profile(None, user_id=ID), ID, "@person"),
    "null in a message": ({"from": ANNA, "context": None, "image": None}, profile(wa_id=ANNA), ANNA, "A Person"),
    "null within a field": ({"from": ANNA, "context": {"forwarded": None}}, profile(wa_id=ANNA), ANNA, "A Person"),
}


@pytest.mark.parametrize("name", PEOPLE)
def test_a_person_is_known_by_their_number_or_else_by_their_id(name: str) -> None:
    message, contact, person, called = PEOPLE[name]
    call = read(message, contact)
    (found,) = call.messages
    assert (found.message.chat_id, found.message.sender_id, found.message.content) == (person, person, "hi")
    assert (found.name, call.unreadable_parts) == (called, 0)


def test_the_report_is_one_message_of_a_person() -> None:
    (found,) = read_call("whatsapp", json.dumps(REPORT["body"]).encode(), "77").messages
    assert (found.message.chat_id, found.message.content, found.name) == (ID, "hi", "A Person")


@pytest.mark.parametrize(("chat", "field", "other"), [(ID, "recipient", "to"), (ANNA, "to", "recipient")])
def test_an_answer_goes_to_an_id_as_recipient_and_to_a_number_as_before(chat: str, field: str, other: str) -> None:
    post = Post(target=PostTarget(session="s", chat_id=chat), key="k", piece=Piece("x", "x"))
    sent = text_message(post, "x")
    assert (sent["recipient_type"], sent[field], other in sent) == ("individual", chat, False)


UNREADABLE: Final[dict[str, dict[str, Any]]] = {
    "of nobody": {},
    "of an id in an unknown form": {"from_user_id": "somebody"},
    "of a type that is not passed on": {"from": ANNA, "type": "unsupported", "text": None},
    "of an unknown type": {"from": ANNA, "type": "unknown", "text": None, "errors": [{"code": 131051}]},
    "with a text in another form": {"from": ANNA, "text": "hi"},
    "without an id": {"from": ANNA, "id": None},
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_message_that_cannot_be_read_is_counted(name: str) -> None:
    call = read(UNREADABLE[name])
    assert (call.messages, call.unreadable_parts) == ((), 1)


BEFORE: Final = {
    "test_a_person_is_known_by_their_number_or_else_by_their_id": 3,
    "test_the_report_is_one_message_of_a_person": 0,
    "test_an_answer_goes_to_an_id_as_recipient_and_to_a_number_as_before": 1,
    "test_a_message_that_cannot_be_read_is_counted": 2,
}
