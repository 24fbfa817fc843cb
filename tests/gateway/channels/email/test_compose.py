"""Posts as mails: what goes over the wire, read back by another parser."""

from __future__ import annotations

import email.policy
from email.message import EmailMessage, MIMEPart

import pytest

from gateway.channels.email.compose import compose_mail
from gateway.channels.email.parse import ANSWERS, REFERENCES, SUBJECT
from gateway.channels.email.render import render_reply
from gateway.platform.protocol import File, Post, PostRefused, PostTarget
from tests.gateway.channels.email.mails import ANNA, ME

NOTES = {SUBJECT: "Ponds", ANSWERS: "2@x", REFERENCES: "1@x 2@x"}
THREAD = "0123456789abcdef"


def post(text: str = "hello", *, notes: dict[str, str] | None = None, to: str = ANNA, **more: object) -> Post:
    place = PostTarget(
        session=f"email:{to}#{THREAD}", chat_id=to, thread=THREAD, notes=NOTES if notes is None else notes
    )
    given = {"target": place, "key": "email:x:1:0", "piece": render_reply(text)[0], **more}
    return Post(**given)  # type: ignore[arg-type]


def composed(one: Post, name: str = "Shoal") -> EmailMessage:
    """As a mail program reads it; checked to be what every mail server takes."""
    raw = compose_mail(one, address=ME, name=name)
    assert raw.isascii()
    assert raw.count(b"\n") == raw.count(b"\r\n") == raw.count(b"\r")
    assert max(map(len, raw.split(b"\r\n"))) <= 998
    assert b": \r\n" not in raw.partition(b"\r\n\r\n")[0]
    return email.message_from_bytes(raw, policy=email.policy.default)


def read_back(part: MIMEPart) -> str:
    return str(part.get_content()).replace("\r\n", "\n").strip()


def test_a_reply_is_a_mail_in_both_forms() -> None:
    """In its thread, from us, and known as what a program wrote."""
    mail = composed(post("**Grüße** aus\n\nKöln"))
    assert [part.get_content_type() for part in mail.iter_parts()] == ["text/plain", "text/html"]
    plain, html = mail.get_body(("plain",)), mail.get_body(("html",))
    assert plain is not None
    assert html is not None
    assert read_back(plain) == "Grüße aus\n\nKöln"
    assert "<strong>Grüße</strong>" in html.get_content() or "<b>Grüße</b>" in html.get_content()
    headers = {name: str(mail[name]) for name in mail}
    assert (headers["From"], headers["To"], headers["Subject"]) == (f"Shoal <{ME}>", ANNA, "Re: Ponds")
    assert (headers["In-Reply-To"], headers["References"]) == ("<2@x>", "<1@x> <2@x>")
    assert headers["Auto-Submitted"] == "auto-replied"
    assert "AutoReply" in headers["X-Auto-Response-Suppress"]
    assert all(mail.get_all(name) == [mail[name]] for name in mail)


def test_every_try_has_the_same_id_and_every_post_its_own() -> None:
    """By which receivers fold a mail that was sent twice."""
    ids = {str(composed(one)["Message-ID"]) for one in (post(), post(), post("other words", as_plain=True))}
    assert len(ids) == 1
    assert ids.pop().endswith(f".{THREAD}@pond.example>")
    assert composed(post())["Message-ID"] != composed(post(key="email:x:1:1"))["Message-ID"]


def test_as_plain_there_is_no_html() -> None:
    """Where it was refused."""
    mail = composed(post("**hello**", as_plain=True))
    assert (mail.get_content_type(), mail.get_content().strip()) == ("text/plain", "hello")


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        ("Ponds", "Re: Ponds"),
        ("Re: Ponds", "Re: Ponds"),
        ("RE: Ponds", "RE: Ponds"),
        ("AW: Teiche", "AW: Teiche"),
        ("Fwd: Ponds", "Re: Fwd: Ponds"),
        ("Reed and ponds", "Re: Reed and ponds"),
        ("", "Re: (no subject)"),
        ("Grüße 你好", "Re: Grüße 你好"),
        ("a\r\nBcc: eve@evil.example", "Re: a Bcc: eve@evil.example"),
        ("x" * 5000, f"Re: {'x' * 200}"),
        ("ä " * 100, f"Re: {'ä ' * 99}ä"),
        (f"{'ä' * 150} {'b' * 49}", f"Re: {'ä' * 150} {'b' * 49}"),
    ],
)
def test_the_subject_is_that_of_the_thread(subject: str, expected: str) -> None:
    """One line, whatever it says."""
    mail = composed(post(notes={**NOTES, SUBJECT: subject}))
    assert mail["Subject"] == expected
    assert mail["Bcc"] is None


def test_it_shows_what_it_answers() -> None:
    """Where that is known; the mail that is answered stands last."""
    mail = composed(post(reply_to="1@x"))
    assert (mail["In-Reply-To"], mail["References"]) == ("<1@x>", "<2@x> <1@x>")
    mail = composed(post(reply_to="f" * 64))  # a name of ours for an id that is none
    assert (mail["In-Reply-To"], mail["References"]) == ("<2@x>", "<1@x> <2@x>")
    mail = composed(post(notes={}))
    assert (mail["In-Reply-To"], mail["References"]) == (None, None)
    long = [f"{'a' * 200}{number}@x.example" for number in range(10)]
    mail = composed(post(notes={**NOTES, REFERENCES: " ".join(long), ANSWERS: "last@x"}))
    assert str(mail["References"]).split() == [f"<{one}>" for one in [long[0], *long[2:], "last@x"]]


@pytest.mark.parametrize("notes", [{ANSWERS: "a> <b@c", REFERENCES: "x y@z<"}, {ANSWERS: "ä@x", REFERENCES: "ä@x"}])
def test_what_is_no_id_is_left_out(notes: dict[str, str]) -> None:
    """Of notes that somebody else wrote."""
    mail = composed(post(notes=notes))
    assert (mail["In-Reply-To"], mail["References"]) == (None, None)


def test_a_file_is_a_mail_of_its_own() -> None:
    """With its name in any letters, and whole."""
    data = bytes(range(256)) * 50
    file = File(reference="r", name="Größe & mehr\r\n.png", media_type="image/png", size_bytes=len(data), data=data)
    mail = composed(post(piece=None, file=file))
    [attached] = mail.iter_attachments()
    assert (attached.get_content_type(), attached.get_filename()) == ("image/png", "Größe & mehr .png")
    assert attached.get_payload(decode=True) == data
    odd = File(reference="r", name="", media_type="nonsense\r\n", size_bytes=1, data=b"x")
    [attached] = composed(post(piece=None, file=odd)).iter_attachments()
    assert (attached.get_content_type(), attached.get_filename()) == ("application/octet-stream", "file")


def test_our_name_is_ours_in_any_letters() -> None:
    """And no more than a name."""
    assert composed(post(), name="Schwärm, der")["From"].addresses[0].display_name == "Schwärm, der"
    mail = composed(post(), name="Shoal\r\nBcc: eve@evil.example")
    assert mail["From"].addresses[0].addr_spec == ME
    assert mail["Bcc"] is None


@pytest.mark.parametrize("to", ["", "anna", "a@b, c@d", "a@b\r\nBcc: c@d", "<a@b>", "änna@b.example"])
def test_a_mail_to_no_address_is_not_made(to: str) -> None:
    """A session may be made by hand."""
    with pytest.raises(PostRefused):
        compose_mail(post(to=to), address=ME, name="Shoal")


def test_a_line_of_a_paragraph_may_be_long() -> None:
    """The way breaks it, and its reader joins it again."""
    text = "word " * 5_000
    body = composed(post(text)).get_body(("plain",))
    assert body is not None
    assert read_back(body) == text.strip()
    dots = composed(post(".\n\n..x\n\nFrom here")).get_body(("plain",))
    assert dots is not None
    assert read_back(dots) == ".\n\n..x\n\nFrom here"
