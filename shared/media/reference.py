"""References to stored files in messages: `media:<sha256>.<suffix>;<bytes>;<name>`."""

from __future__ import annotations

import re
import unicodedata
from typing import Final
from urllib.parse import quote, unquote

import msgspec

from shared.errors import BadInput
from shared.media.kinds import KINDS, Kind

PREFIX: Final = "media:"
NAME_CHARS: Final = 80
FALLBACK: Final = "file"

_FORM: Final = re.compile(r"media:([0-9a-f]{64})\.([a-z0-9]{2,5});(\d{1,12});([^;]{0,1000})", re.ASCII)


class MediaRef(msgspec.Struct, frozen=True):
    """A stored file of a session. `name` is what people call it: shown, and never a path."""

    digest: str
    suffix: str
    size_bytes: int
    name: str

    @property
    def kind(self) -> Kind:
        return KINDS[self.suffix]

    @property
    def file(self) -> str:
        return f"{self.digest}.{self.suffix}"

    def __str__(self) -> str:
        return f"{PREFIX}{self.file};{self.size_bytes};{quote(self.name, safe='')}"


def read_reference(text: str) -> MediaRef:
    """Parse a reference. Raises BadInput (`bad_media`) for any other text."""
    found = _FORM.fullmatch(text)
    if found is None or found[2] not in KINDS:
        raise BadInput("bad_media", "an attachment must be named as the upload answered")
    return MediaRef(found[1], found[2], int(found[3]), clean_name(unquote(found[4])))


def read_file_name(text: str) -> tuple[str, str] | None:
    """Parse `<sha256>.<suffix>` into digest and suffix; None for anything else."""
    digest, _, suffix = text.partition(".")
    return (digest, suffix) if suffix in KINDS and re.fullmatch(r"[0-9a-f]{64}", digest) else None


def clean_name(name: str) -> str:
    """Clean a name for people: the last part of a path, printable characters, at most 80."""
    last = re.split(r"[/\\]", unicodedata.normalize("NFC", name))[-1]
    shown = "".join(sign for sign in last if sign.isprintable()).strip().strip(".")
    if len(shown) > NAME_CHARS:
        stem, dot, suffix = shown.rpartition(".")
        fits = dot and len(suffix) <= 10
        shown = f"{stem[: NAME_CHARS - len(suffix) - 1]}.{suffix}" if fits else shown[:NAME_CHARS]
    return shown or FALLBACK
