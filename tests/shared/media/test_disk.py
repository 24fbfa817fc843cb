"""What one person uses of a volume, whatever happens meanwhile, and what must stay free of it."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.ids import folder_name, person_of
from shared.media.disk import FRESH_S, PEOPLE, SWEPT_S, DiskFloor, DiskFull, PersonUsage
from shared.media.files import UNNAMED_S, MediaNotFound, MediaTooBig
from shared.media.reference import MediaRef
from shared.media.store import MediaStore
from shared.settings import MediaSettings

MB = 1024 * 1024
CHATS = [f"web:owner/{n}" for n in range(40)]


def kept(root: Path) -> int:
    """The bytes of files on a volume."""
    return sum(path.stat().st_size for path in root.rglob("*") if path.is_file() and PEOPLE not in path.parts)


def age(root: Path, seconds: float) -> None:
    """Make everything on a volume older."""
    for path in root.rglob("*"):
        if path.is_file():
            then = path.stat().st_mtime - seconds
            os.utime(path, (then, then))


def upload(store: MediaStore, session: str, data: bytes) -> MediaRef:
    """Store a file as the page does, which no message names yet."""
    with store.upload(session) as part:
        part.write(data)
        return part.finish("a.txt", named=False)


@pytest.fixture
def store(tmp_path: Path) -> MediaStore:
    return MediaStore(MediaSettings(dir=tmp_path, file_mb=1, session_mb=2, person_mb=10))


def test_forty_files_into_forty_chats_by_one_token_do_not_fill_the_disk(store: MediaStore, tmp_path: Path) -> None:
    """The limit of a chat is none for a person, for whom chats are free; of somebody else nothing is taken."""
    refused = []
    for n, chat in enumerate(CHATS):
        try:
            upload(store, chat, bytes([97 + n % 26]) * MB)
        except MediaTooBig as exc:
            refused.append(exc.message)
    assert (len(refused), kept(tmp_path)) == (30, 10 * MB)
    why = "file refused: all chats of this person would have more than 10 MB of files; "
    assert set(refused) == {why + "what no message names goes within two hours, the rest after 30 days"}
    upload(store, "web:ann/a", b"theirs")
    with pytest.raises(MediaTooBig):
        store.put("api:owner/~1", b"a" * 5000, "a")  # the same token, over HTTP
    age(tmp_path, UNNAMED_S + 1)
    upload(store, CHATS[0], b"again")  # without a sweep
    store.expire()
    assert kept(tmp_path) == len(b"again")


def test_uploads_at_once_never_exceed_the_limit_together(store: MediaStore, tmp_path: Path) -> None:
    """Each books before it looks, so that of two at the border never both are taken."""

    def one(chat: str) -> bool:
        try:
            return upload(store, chat, chat.encode() * (MB // len(chat))).size_bytes > 0
        except MediaTooBig:
            return False

    with ThreadPoolExecutor(8) as pool:
        stored = sum(pool.map(one, CHATS))
    assert 1 <= stored <= 10
    assert kept(tmp_path) <= 10 * MB


def test_what_no_message_names_is_gone_after_an_hour(store: MediaStore, tmp_path: Path) -> None:
    """And what one names stays for its days, also if the same is uploaded again."""
    orphan = upload(store, CHATS[0], b"orphan")
    named = upload(store, CHATS[0], b"named")
    assert store.claim(CHATS[0], named) == 5
    upload(store, CHATS[0], b"named")
    assert store.size(CHATS[0], orphan) == 6
    age(tmp_path, UNNAMED_S + 1)
    with pytest.raises(MediaNotFound):
        store.claim(CHATS[0], orphan)
    assert store.expire() == 1
    age(tmp_path, 29 * 86_400)
    assert store.read(CHATS[0], named) == b"named"


def test_a_file_whose_gateway_claims_nothing_is_claimed_by_the_turn_that_reads_it(
    store: MediaStore, tmp_path: Path
) -> None:
    """During an update the message may pass a gateway of the release before."""
    ref = upload(store, CHATS[0], b"named")
    assert store.read(CHATS[0], ref) == b"named"
    age(tmp_path, UNNAMED_S + 1)
    assert store.size(CHATS[0], ref) == 5


def test_forgetting_spares_what_was_uploaded_after_it(store: MediaStore, tmp_path: Path) -> None:
    """Though the time of a file that no message named yet lies in the past."""
    upload(store, CHATS[0], b"before")
    age(tmp_path, 10)
    after = upload(store, CHATS[0], b"after")
    assert store.forget(folder_name(CHATS[0]), before_s=time.time() - 5) == 1
    assert store.size(CHATS[0], after) == 5


@pytest.mark.parametrize(
    ("sessions", "person"),
    [
        (("web:owner/a", "web:owner/b", "api:owner/x", "api:owner/~1"), "owner"),
        (("web:ann/a",), "ann"),
        (("telegram:77", "telegram:77%23topic"), "telegram:77"),
        (("slack:C1%23a%23b",), "slack:C1%23a"),
        (("irc:%23general",), "irc:%23general"),
    ],
)
def test_a_person_is_the_owner_of_a_token_or_a_chat_with_its_threads(sessions: tuple[str, ...], person: str) -> None:
    """A name of a chat costs nothing and must not buy space."""
    assert {person_of(session) for session in sessions} == {person}


class Folders:
    """Folders with sizes, and what is booked of them."""

    def __init__(self, root: Path, limit: int = 100) -> None:
        self.sizes: dict[str, int] = {}
        self.measured = 0
        self.root = root
        self.usage = PersonUsage(root, limit, self._measure)

    def _measure(self, folder: str) -> int:
        self.measured += 1
        return self.sizes.get(folder, 0)

    def write(self, folder: str, size: int) -> bool:
        """As a writer does."""
        before = self.sizes.get(folder, 0)
        if self.usage.book("ann", folder, size):
            self.usage.book("ann", folder, before)
            return False
        self.sizes[folder] = size
        return True


@given(
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from("abcd"), st.integers(0, 120)),
            st.sampled_from(["killed", "sweep", "later", "off", "deleted"]),
        ),
        max_size=25,
    )
)
def test_no_order_of_writes_crashes_and_sweeps_exceeds_the_limit(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int] | str]
) -> None:
    """A booking that a crash left too high refuses nothing for more than a minute."""
    folders = Folders(tmp_path_factory.mktemp("volume"))
    for step in steps:
        if step == "killed":  # after it had booked, before it wrote
            folders.usage.book("ann", "a", 99)
        elif step == "deleted":
            folders.sizes.pop("b", None)
        elif step == "sweep":
            folders.usage.sweep()
        elif step == "later":
            age(folders.root, FRESH_S + 1)
        elif not isinstance(step, str):
            folders.write(*step)
        assert sum(folders.sizes.values()) <= 100
    age(folders.root, FRESH_S + 1)
    room = 100 - sum(folders.sizes.values())
    assert folders.write("new", room)


def test_a_sum_needs_no_look_into_folders_and_a_refusal_only_one_a_minute(tmp_path: Path) -> None:
    """What is asked often has to be cheap, also for somebody who is at their limit and goes on asking."""
    folders = Folders(tmp_path)
    assert all(folders.write(f"f{n}", 10) for n in range(10))
    assert folders.measured == 0
    age(tmp_path, FRESH_S + 1)
    assert not any(folders.write("g", 10) for _ in range(20))
    assert folders.measured == 10


def test_a_sweep_corrects_what_was_booked_lately(tmp_path: Path) -> None:
    """A worker was killed while a command wrote: too little was booked. Old bookings are not measured."""
    folders = Folders(tmp_path)
    folders.write("a", 10)
    folders.write("b", 10)
    folders.sizes = {"a": 90, "b": 0}
    folders.usage.sweep()
    assert not folders.write("c", 20)
    assert folders.write("c", 10)
    age(tmp_path, SWEPT_S + 1)
    folders.measured = 0
    folders.usage.sweep()
    assert folders.measured == 0
    for folder in ("a", "c"):
        folders.usage.drop(folder)
    folders.usage.sweep()
    assert list((tmp_path / PEOPLE).iterdir()) == []


def test_a_folder_that_cannot_be_measured_keeps_its_booking(tmp_path: Path) -> None:
    """What a command closed in one chat refuses nothing in another."""

    def closed(_: str) -> int:
        raise PermissionError

    usage = PersonUsage(tmp_path, 100, closed)
    assert usage.book("ann", "a", 60) == 0
    age(tmp_path, FRESH_S + 1)
    assert usage.book("ann", "b", 50) == 10
    assert usage.book("ann", "b", 40) == 0
    usage.sweep()


def test_without_a_limit_nothing_is_booked(tmp_path: Path) -> None:
    """The operator has switched it off."""
    usage = PersonUsage(tmp_path, 0, lambda _: 0)
    assert (usage.book("ann", "a", 2**40), usage.over_bytes("ann")) == (0, 0)
    assert list(tmp_path.iterdir()) == []


def test_a_floor_is_a_size_or_a_share_of_the_volume(tmp_path: Path) -> None:
    """Whichever is less: a small disk can still be used, and a large one does not keep 50 GB free."""
    space = os.statvfs(tmp_path)
    whole = space.f_blocks * space.f_frsize
    missing = tmp_path / "not" / "made"
    free = DiskFloor(0).room_bytes(missing)
    assert free - DiskFloor(2**62, 0.5).room_bytes(missing) == pytest.approx(whole * 0.5, rel=0.01)
    assert free - DiskFloor(1000, 0.5).room_bytes(missing) == pytest.approx(1000, abs=64 * MB)
    DiskFloor(0, 1.0).check(missing)
    with pytest.raises(DiskFull):
        DiskFloor(2**62, 1.0).check(missing)
