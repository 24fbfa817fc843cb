"""Compose a mail from a post. Pure except for its date."""

from __future__ import annotations

import hashlib
import re
from email.charset import QP, Charset
from email.encoders import encode_base64
from email.header import Header
from email.message import Message
from email.mime.base import MIMEBase
from email.mime.multipart import MIMEMultipart
from email.mime.text import MIMEText
from email.policy import compat32
from email.utils import formataddr, formatdate
from typing import Final

from gateway.channels.email.parse import ANSWERS, REFERENCES, REFERENCES_KEPT, SUBJECT, SUBJECT_CHARS
from gateway.channels.email.sender import ADDRESS
from gateway.platform.protocol import File, Post, PostRefused

_UTF8: Final = Charset("utf-8")
_UTF8.body_encoding = QP
_POLICY: Final = compat32.clone(linesep="\r\n", max_line_length=900)
"""Folding at 78 would leave the first line of a header with a long id blank, which some servers
take for the end of the header."""

_RE: Final = re.compile(r"\s*(?:re|aw|sv|antw|odp|rif|res)\s*(?:\[\d+\])?\s*:", re.IGNORECASE)
_ID: Final = re.compile(r"[!-;=?-~]+@[!-;=?-~]+")
_TYPE: Final = re.compile(r"[a-z0-9!#$&^_.+-]+/[a-z0-9!#$&^_.+-]+", re.IGNORECASE)


def compose_mail(post: Post, *, address: str, name: str) -> bytes:
    """Return the bytes of a reply, from `name` at `address`. Repeats of a post differ only in date
    and MIME boundary. Raises PostRefused if the recipient is not an address."""
    to = post.target.chat_id
    if not ADDRESS.fullmatch(to):
        raise PostRefused("the chat is not a mail address")
    mail = _mail_body(post)
    notes = post.target.notes
    mail["From"] = formataddr((_one_line(name), address))
    mail["To"] = to
    mail["Subject"] = _reply_subject(notes.get(SUBJECT, ""))
    mail["Date"] = formatdate()
    mail["Message-ID"] = f"<{message_id(post, address)}>"
    answers, before = _references(post)
    if answers:
        mail["In-Reply-To"] = f"<{answers}>"
    if before:
        mail["References"] = " ".join(f"<{one}>" for one in before)
    mail["Auto-Submitted"] = "auto-replied"
    mail["X-Auto-Response-Suppress"] = "DR, RN, NRN, OOF, AutoReply"
    return mail.as_bytes(policy=_POLICY)


def message_id(post: Post, address: str) -> str:
    """Return the Message-ID, equal for every try, with the thread: some clients keep only that."""
    thread = post.target.thread or ""
    key = hashlib.sha256(post.key.encode()).hexdigest()[:32]
    if not re.fullmatch("[0-9a-f]{16}", thread):
        thread = "0" * 16
    return f"{key}.{thread}@{address.rpartition('@')[2]}"


def _mail_body(post: Post) -> Message:
    if post.file is not None:
        return _file_body(post.file)
    assert post.piece is not None
    plain = MIMEText(post.piece.plain, "plain", _UTF8)  # type: ignore[arg-type]
    if post.as_plain:
        return plain
    html = f'<!DOCTYPE html>\n<html><head><meta charset="utf-8"></head><body>\n{post.piece.text}\n</body></html>\n'
    both = MIMEMultipart("alternative")
    both.attach(plain)
    both.attach(MIMEText(html, "html", _UTF8))  # type: ignore[arg-type]
    return both


def _file_body(file: File) -> Message:
    name = _one_line(file.name) or "file"
    kind = file.media_type if _TYPE.fullmatch(file.media_type) else "application/octet-stream"
    part = MIMEBase(*kind.split("/"))
    part.set_payload(file.data)
    encode_base64(part)
    filename = name if name.isascii() else ("utf-8", "", name)
    part.add_header("Content-Disposition", "attachment", filename=filename)
    mail = MIMEMultipart("mixed")
    mail.attach(MIMEText(f"{name}\n", "plain", _UTF8))  # type: ignore[arg-type]
    mail.attach(part)
    return mail


def _references(post: Post) -> tuple[str, list[str]]:
    """Return the mail that this one answers, and the earlier ones, oldest first, ending with it."""
    notes = post.target.notes
    before = [one for one in notes.get(REFERENCES, "").split() if _ID.fullmatch(one)]
    answers = post.reply_to if post.reply_to and "@" in post.reply_to else notes.get(ANSWERS, "")
    if not _ID.fullmatch(answers):
        return "", before
    before = [one for one in before if one != answers]
    if len(before) >= REFERENCES_KEPT:
        before = [before[0], *before[2 - REFERENCES_KEPT :]]
    return answers, [*before, answers]


def _reply_subject(subject: str) -> str:
    subject = _one_line(subject)[:SUBJECT_CHARS] or "(no subject)"
    answer = subject if _RE.match(subject) else f"Re: {subject}"
    return answer if answer.isascii() else Header(answer, "utf-8", header_name="Subject").encode()


def _one_line(text: str) -> str:
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())
