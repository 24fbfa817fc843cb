from __future__ import annotations

from email.message import EmailMessage
from email.policy import SMTP

from gateway.channels.email.render import SIZE_LIMIT, render_reply
from tests.gateway.text.readers import email as shown


def test_a_mail_has_both_forms() -> None:
    """HTML for who shows it, text for who does not; both say the same."""
    (piece,) = render_reply("# Hi\n\n- a **b**\n- [c](https://h.example/)\n\n|x|y|\n|-|-:|\n|1|2|\n")
    assert "<h1>Hi</h1>" in piece.text
    assert '<a href="https://h.example/">c</a> (h.example)' in piece.text
    assert '<td align="right">2</td>' in piece.text
    assert piece.plain == "Hi\n\n• a b\n• c (https://h.example/)\n\nx  y\n─  ─\n1  2"


def test_nothing_is_loaded_from_elsewhere() -> None:
    """An image would tell its host that the mail was read."""
    (piece,) = render_reply(
        '![x](https://evil.example/i.png) <img src="https://evil.example/i.png"> <style>@import</style>'
    )
    assert shown(piece.text).strip().startswith("x (evil.example)")
    assert not {"<img", "<style", "<link"} & set(piece.text.split())
    assert "src=" not in piece.text.replace("src=&quot;", "")


def test_a_paragraph_of_any_length_goes_through_a_mail_server() -> None:
    """As quoted-printable no line is longer than 78, and nothing of it is changed."""
    (piece,) = render_reply("word " * 3000 + "\n\n`" + "x" * 2000 + "` é 漢字")
    mail = EmailMessage(policy=SMTP)
    mail.set_content(piece.plain, cte="quoted-printable")
    mail.add_alternative(piece.text, subtype="html", cte="quoted-printable")
    assert max(map(len, mail.as_bytes().split(b"\r\n"))) <= 78
    plain, html = mail.iter_parts()
    assert plain.get_content() == piece.plain.replace("\n", "\n") + "\n"
    assert html.get_content() == piece.text + "\n"


def test_what_is_longer_than_a_megabyte_becomes_several_mails() -> None:
    """Servers refuse more sooner or later."""
    pieces = render_reply("some words\n" * 120_000)
    assert len(pieces) == 2
    assert all(max(len(piece.text), len(piece.plain)) <= SIZE_LIMIT for piece in pieces)
