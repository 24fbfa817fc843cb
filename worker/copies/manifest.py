"""The manifest of a workspace: the one object that says which files it has. It is replaced as a
whole, so that a reader finds one state or the next, never a mix."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal

import msgspec

Kind = Literal["file", "link", "folder"]
VERSION: Final = 1


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file, a link (`blob` is its target) or a folder. `blob` names the object with its bytes: its
    SHA-256 and the id of the write that made it, so that none is ever written twice."""

    kind: Kind = "file"
    blob: str = ""
    mode: int = 0o600
    mtime_ns: int = 0
    kept_s: float = 0.0  # when it was written back, in seconds since 1970: what `/forget` goes by

    def same_as(self, other: Entry | None) -> bool:
        """Tell whether both are the same file, whenever they were written back."""
        return other is not None and msgspec.structs.replace(self, kept_s=other.kept_s) == other


class Manifest(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state of a workspace, last written by the lease `token` of `member` in the write `id`."""

    version: int = VERSION
    member: str = ""
    token: int = 0
    id: str = ""
    tokens: Mapping[str, int] = {}
    entries: Mapping[str, Entry] = {}

    def blobs(self) -> set[str]:
        """Return the names of all objects that it needs."""
        return {entry.blob for entry in self.entries.values() if entry.kind == "file"}


class Index(msgspec.Struct, frozen=True):
    """What a worker knows of its local copy: the manifest that it shows, and the status of each file
    then. A file with another status was changed since."""

    etag: str = ""
    manifest: Manifest = Manifest()
    seen: Mapping[str, tuple[int, ...]] = {}


def changes(base: Mapping[str, Entry], now: Mapping[str, Entry]) -> dict[str, Entry | None]:
    """Return what makes `now` of `base`: new entries by path, None for a removed one."""
    changed: dict[str, Entry | None] = {path: entry for path, entry in now.items() if not entry.same_as(base.get(path))}
    return changed | dict.fromkeys(base.keys() - now.keys())


def with_parents(paths: Iterable[str]) -> set[str]:
    """Return the paths and all folders that they lie in."""
    return {"/".join(path.split("/")[:depth]) for path in paths for depth in range(1, path.count("/") + 2)}
