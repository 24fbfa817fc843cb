"""Media in an S3 bucket. The content of a file is one object. That it exists, and how long, is said
by empty objects whose names have it all, so that one listing sums up what a person has:

    media/content/<chat>/<person>/<file>
    media/state/<person>/<chat>/<file>/<ms>-<bytes>-<held|named>-<nonce>

Chat and person are hashes, `file` is the hash of the content and a suffix. A held state lasts an
hour (an upload, and then a file that no message names), a named one `media.days`; a file exists as
long as one of its states. Objects are only added and deleted, never overwritten with another
content, so no conditional writes are needed."""

from __future__ import annotations

import itertools
import random
import re
import secrets
import tempfile
import time
from collections.abc import Iterable
from functools import cached_property
from typing import BinaryIO, Final

import msgspec

from shared.ids import folder_name, person_of
from shared.media.disk import FILE_BYTES, DiskFloor
from shared.media.files import (
    DAY_S,
    MB,
    UNNAMED_S,
    MediaTooBig,
    Part,
    StoredFile,
    chat_has_too_much,
    person_has_too_much,
)
from shared.media.reference import MediaRef
from shared.object_store import ObjectStore, open_store
from shared.settings import MediaSettings

TRIES: Final = 6
COLLISION_S: Final = 0.3  # how far the second tries of uploads that collide are spread
AT_ONCE_S: Final = 5.0

_RNG: Final = random.Random()
_CONTENT: Final = "media/content"
_STATE: Final = "media/state"
_KEY: Final = re.compile(rf"{_STATE}/(\w+)/(\w+)/([\w.]+)/(\d+)-(\d+)-(held|named)-\w+", re.ASCII)


class _State(msgspec.Struct, frozen=True):
    """What the key of a state says."""

    key: str
    file: tuple[str, str, str]  # person, chat, name
    at_s: float
    size_bytes: int
    named: bool


class BucketFiles:
    """MediaFiles in `media.store`. In `media.dir` are only files that are just being sent."""

    def __init__(self, settings: MediaSettings, floor: DiskFloor) -> None:
        self._settings = settings
        self._floor = floor

    @cached_property
    def store(self) -> ObjectStore:
        """The bucket; its library is imported by the first call."""
        return open_store(self._settings, "media.store")

    def begin(self, session: str) -> Part:
        return Part(self._scratch_file())

    def keep(self, session: str, ref: MediaRef, part: Part, data: bytes, *, named: bool) -> None:
        self._hold(session, ref.file, len(data))
        self.store.put(_content_key(*_place(session, ref.file)), data)
        if part.file.closed:  # its sender was given up meanwhile, so no message will name it
            raise TimeoutError
        if named:
            self._add_state(session, ref.file, len(data), named=True)

    def find(self, session: str, file: str) -> StoredFile | None:
        states = self._states_now(*_place(session, file))
        if not states:
            return None
        return StoredFile(states[0].size_bytes, any(state.named for state in states))

    def name(self, session: str, file: str, size_bytes: int) -> None:
        self._add_state(session, file, size_bytes, named=True)

    def open(self, session: str, file: str) -> BinaryIO:
        copy = self._scratch_file()
        try:
            if not self.store.download(_content_key(*_place(session, file)), copy):
                raise FileNotFoundError(file)
        except BaseException:
            copy.close()
            raise
        copy.seek(0)
        return copy

    def forget(self, folder: str, before_s: float) -> int:
        gone = 0
        for key, _ in self.store.list(f"{_CONTENT}/{folder}"):
            person, file = key.split("/")[-2:]
            states = self._states(person, folder, file)
            if not any(state.at_s >= before_s for state in states):
                self._delete((person, folder, file), states)
                gone += 1
        return gone

    def expire(self) -> int:
        gone = 0
        for place, group in itertools.groupby(self._states(), key=lambda state: state.file):
            states = list(group)
            over = [state for state in states if self._is_over(state)]
            if len(over) == len(states):
                states = self._states(*place)  # one may have been added since
                if all(map(self._is_over, states)):
                    self._delete(place, states)
                    gone += 1
            else:
                newest_s = max((state.at_s for state in states if state.named), default=0)
                over += [state for state in states if state.named and state.at_s < newest_s]
                self.store.delete([state.key for state in over])
        return gone

    def _hold(self, session: str, file: str, size_bytes: int) -> None:
        """Add a state for a file that is being stored. Raises MediaTooBig."""
        for tries_left in reversed(range(TRIES)):
            # The state comes first: of two uploads at the border each sees the other, and never both
            # are accepted. What a crash leaves from here on is deleted after an hour.
            held = self._add_state(session, file, size_bytes, named=False)
            states = self._states_now(folder_name(person_of(session)))
            try:
                self._check_limits(session, states)
                return
            except MediaTooBig:
                self.store.delete([held])
                # Where only uploads of this moment are in the way, all of them see so and give way;
                # one of those that come again, each after a while of its own, finds room.
                settled = [state for state in states if state.named or state.key == held or _is_settled(state)]
                self._check_limits(session, settled)
                if not tries_left:
                    raise
            time.sleep(_RNG.uniform(0, COLLISION_S * (TRIES - tries_left)))

    def _delete(self, place: tuple[str, str, str], states: Iterable[_State]) -> None:
        """Delete a file. Its states go last, so that a crash leaves something to sweep."""
        self.store.delete([_content_key(*place), *(state.key for state in states)])

    def _check_limits(self, session: str, states: Iterable[_State]) -> None:
        """Raise MediaTooBig when by these states of a person a session or the person has too much."""
        chat = folder_name(session)
        sizes = {state.file: state.size_bytes for state in states}
        if sum(size for file, size in sizes.items() if file[1] == chat) > self._settings.session_mb * MB:
            raise chat_has_too_much(self._settings)
        limit_mb = self._settings.person_mb
        if limit_mb and sum(max(size, FILE_BYTES) for size in sizes.values()) > limit_mb * MB:
            raise person_has_too_much(self._settings)

    def _is_over(self, state: _State) -> bool:
        lasts_s = self._settings.days * DAY_S if state.named else UNNAMED_S
        return state.at_s < time.time() - lasts_s

    def _add_state(self, session: str, file: str, size_bytes: int, *, named: bool) -> str:
        kind = "named" if named else "held"
        state = f"{time.time_ns() // 1_000_000}-{size_bytes}-{kind}-{secrets.token_hex(4)}"
        key = "/".join([_STATE, *_place(session, file), state])
        self.store.put(key, b"")
        return key

    def _states(self, *place: str) -> list[_State]:
        """Return the states of a file, a chat, a person or everybody."""
        found = (_KEY.fullmatch(key) for key, _ in self.store.list("/".join([_STATE, *place])))
        return [_read_state(key) for key in found if key]

    def _states_now(self, *place: str) -> list[_State]:
        """Return the states that are not over."""
        return [state for state in self._states(*place) if not self._is_over(state)]

    def _scratch_file(self) -> BinaryIO:
        """Open a file without a name, which goes with the process at the latest. Raises DiskFull."""
        folder = self._settings.dir.absolute()
        self._floor.check(folder)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return tempfile.TemporaryFile(dir=folder)


def _place(session: str, file: str) -> tuple[str, str, str]:
    return folder_name(person_of(session)), folder_name(session), file


def _is_settled(state: _State) -> bool:
    """Return whether a state is older than the moment in which uploads at once see each other."""
    return state.at_s < time.time() - AT_ONCE_S


def _content_key(person: str, chat: str, file: str) -> str:
    return f"{_CONTENT}/{chat}/{person}/{file}"


def _read_state(key: re.Match[str]) -> _State:
    person, chat, file, at_ms, size_bytes, kind = key.groups()
    return _State(key[0], (person, chat, file), int(at_ms) / 1000, int(size_bytes), kind == "named")
