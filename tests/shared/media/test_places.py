"""Files on a volume and in a bucket: the same promises, whichever keeps them."""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from structlog.testing import capture_logs

from shared.errors import BadInput, SettingsError
from shared.ids import folder_name
from shared.media.bucket import BucketFiles
from shared.media.disk import PEOPLE, DiskFloor, DiskFull
from shared.media.files import DAY_S, UNNAMED_S, MediaNotFound, MediaTooBig
from shared.media.reference import MediaRef
from shared.media.store import MediaStore, check_store
from shared.settings import MediaSettings
from tests.helpers.s3_server import BUCKET, CREDENTIALS, FlakyProxy, moto_server

MB = 1024 * 1024
SESSION, OTHER = "web:owner/a", "web:ann/a"
CHATS = [f"web:owner/{n}" for n in range(14)]


class Place:
    """A volume, or a bucket, and a look into it."""

    def __init__(self, settings: MediaSettings) -> None:
        self.settings = settings
        self.store = MediaStore(settings)
        self.bucket = BucketFiles(settings, DiskFloor()).store if settings.store else None

    def upload(self, session: str, data: bytes) -> MediaRef:
        """Store a file as the page does, which no message names yet."""
        with self.store.upload(session) as part:
            part.write(data)
            return part.finish("a.txt", named=False)

    def age(self, seconds: float) -> None:
        """Make everything that is stored older."""
        if self.bucket is None:
            for path in self.settings.dir.rglob("*"):
                if path.is_file():
                    then = path.stat().st_mtime - seconds
                    os.utime(path, (then, then))
            return
        for key in self.list_keys("media/state"):
            folder, _, state = key.rpartition("/")
            at_ms, _, rest = state.partition("-")
            self.bucket.put(f"{folder}/{int(at_ms) - round(seconds * 1000)}-{rest}", b"")
            self.bucket.delete([key])

    def list_keys(self, prefix: str = "") -> list[str]:
        assert self.bucket is not None
        return [key for key, _ in self.bucket.list(prefix)]

    @property
    def files(self) -> int:
        """How many files take space."""
        if self.bucket is not None:
            return len(self.list_keys("media/content"))
        found = [path for path in self.settings.dir.rglob("*") if path.is_file()]
        return sum(PEOPLE not in path.parts for path in found)

    @property
    def empty(self) -> bool:
        return not (self.list_keys() if self.bucket is not None else list(self.settings.dir.iterdir()))


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with moto_server() as address:
        yield address


@pytest.fixture
def proxy(server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[FlakyProxy]:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    proxy = FlakyProxy(urlsplit(server).port or 0)
    yield proxy
    proxy.close()


@pytest.fixture
def bucket(proxy: FlakyProxy, tmp_path: Path) -> Place:
    address = f"s3://{BUCKET}/{secrets.token_hex(4)}"
    return Place(
        MediaSettings(
            dir=tmp_path / "media", file_mb=1, session_mb=2, person_mb=5, store=address, store_endpoint=proxy.address
        )
    )


@pytest.fixture(params=["volume", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "bucket":
        found: Place = request.getfixturevalue("bucket")
        return found
    return Place(MediaSettings(dir=tmp_path / "media", file_mb=1, session_mb=2, person_mb=5))


def test_a_file_comes_back_to_its_session_alone(place: Place) -> None:
    store = place.store
    ref = store.put(SESSION, b"secret", "a.txt")
    with store.open(SESSION, ref) as file:
        assert (store.read(SESSION, ref), file.read(), store.size(SESSION, ref)) == (b"secret", b"secret", 6)
        assert os.fstat(file.fileno()).st_size == 6
    for ask in (store.read, store.size, store.open, store.claim):
        with pytest.raises(MediaNotFound):
            ask(OTHER, ref)


def test_nothing_is_left_of_a_file_that_is_refused_or_given_up(place: Place) -> None:
    store = place.store
    with pytest.raises(BadInput, match=r"^file refused: "):
        store.put(SESSION, b"\x7fELF\x02\x00", "a.png")
    with pytest.raises(MediaTooBig, match="larger than 1 MB"):
        store.put(SESSION, b"a" * (MB + 1), "a.txt")
    with store.upload(SESSION) as upload:
        upload.write(b"not finished")
    assert place.files == 0


def test_a_session_and_a_person_have_a_limit_each(place: Place) -> None:
    """The same file again takes no more; other people are not concerned."""
    store = place.store
    for _ in range(2):
        store.put(SESSION, b"a" * MB, "a")
    store.put(SESSION, b"b" * (MB - 1), "b")
    with pytest.raises(MediaTooBig, match="this chat would have more than 2 MB"):
        store.put(SESSION, b"cc", "c")
    for n in range(3):
        place.upload(CHATS[n], bytes([97 + n]) * (MB - 4096))
    with pytest.raises(MediaTooBig, match="all chats of this person would have more than 5 MB"):
        store.put("api:owner/~1", b"d" * 20_000, "d")  # the same token, over HTTP
    store.put(OTHER, b"theirs", "c")
    assert place.files == 6
    place.age(UNNAMED_S + 1)
    store.put("api:owner/~1", b"d" * 20_000, "d")  # what no message named counts no more, before any sweep


def test_uploads_at_once_never_exceed_the_limit_together(place: Place) -> None:
    def one(chat: str) -> bool:
        try:
            return place.upload(chat, chat.encode() * (MB // len(chat))).size_bytes > 0
        except MediaTooBig:
            return False

    with ThreadPoolExecutor(8) as pool:
        stored = sum(pool.map(one, CHATS))
    assert 1 <= stored <= 5
    assert place.files == stored


def test_what_no_message_names_is_gone_after_an_hour(place: Place) -> None:
    """And what one names stays for its days, also if the same is uploaded again."""
    store = place.store
    orphan, named = place.upload(SESSION, b"orphan"), place.upload(SESSION, b"named")
    assert store.claim(SESSION, named) == 5
    place.upload(SESSION, b"named")
    assert store.size(SESSION, orphan) == 6
    place.age(UNNAMED_S + 1)
    with pytest.raises(MediaNotFound):
        store.claim(SESSION, orphan)
    assert store.expire() == 1
    place.age(29 * DAY_S)
    assert store.read(SESSION, named) == b"named"
    place.age(DAY_S)
    with pytest.raises(MediaNotFound):
        store.read(SESSION, named)
    assert store.expire() == 1
    assert place.empty


def test_a_file_that_is_named_again_is_young_again(place: Place) -> None:
    store = place.store
    ref = store.put(SESSION, b"same", "a.txt")
    place.age(29 * DAY_S)
    assert store.claim(SESSION, ref) == 4
    assert store.expire() == 0
    place.age(29 * DAY_S)
    assert store.put(SESSION, b"same", "b.txt").digest == ref.digest
    place.age(29 * DAY_S)
    assert store.expire() == 0
    assert store.read(SESSION, ref) == b"same"


def test_forgetting_a_session_leaves_what_comes_after(place: Place) -> None:
    """And what others have."""
    store = place.store
    place.upload(SESSION, b"before")
    store.put(SESSION, b"before, too", "a.txt")
    kept = store.put(OTHER, b"theirs", "a.txt")
    place.age(10)
    after, named = place.upload(SESSION, b"after"), store.put(SESSION, b"and later", "b.txt")
    assert store.forget(folder_name(SESSION), before_s=time.time() - 5) == 2
    assert [store.read(SESSION, one) for one in (after, named)] == [b"after", b"and later"]
    assert store.read(OTHER, kept) == b"theirs"
    assert store.forget(folder_name("web:nobody/a"), before_s=time.time()) == 0
    assert store.forget(folder_name(SESSION), before_s=time.time() + 5) == 2
    with pytest.raises(ValueError, match="folder of no session"):
        store.forget("../..", before_s=0)


KILLED = """
import os, signal, sys
from pathlib import Path
from shared.media.bucket import BucketFiles
from shared.media.store import MediaStore
from shared.object_store import ObjectStore
from shared.settings import MediaSettings
folder, address, endpoint, when = sys.argv[1:]
def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)
if when == "before the content":
    put = ObjectStore.put
    ObjectStore.put = lambda self, key, data: die() if "/content/" in key else put(self, key, data)
with MediaStore(MediaSettings(dir=Path(folder), store=address, store_endpoint=endpoint)).upload("web:owner/a") as part:
    part.write(b"orphan")
    if when == "in the middle":
        die()
    part.finish("a.txt", named=False)
    die()
"""


@pytest.mark.parametrize("when", ["in the middle", "before the content", "before the message"])
def test_a_killed_gateway_leaves_nothing_that_the_sweep_does_not_take(place: Place, when: str) -> None:
    settings = place.settings
    arguments = [str(settings.dir), settings.store, settings.store_endpoint, when]
    killed = subprocess.run([sys.executable, "-c", KILLED, *arguments], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert place.store.expire() == 0
    place.age(UNNAMED_S + 1 if when != "in the middle" or settings.store else 30 * DAY_S)
    place.store.expire()
    assert place.empty


def test_a_full_disk_refuses_what_is_being_sent(place: Place) -> None:
    """With a bucket it is the disk of this process."""
    full = MediaStore(place.settings, floor=DiskFloor(2**62, 1.0))
    with pytest.raises(DiskFull):
        full.put(SESSION, b"hello", "a.txt")
    assert not place.settings.dir.exists()


@pytest.mark.parametrize("fault", ["503", "cut", "lost", "slow"])
@pytest.mark.parametrize("at", range(4))
def test_faults_of_the_network_lose_nothing(bucket: Place, proxy: FlakyProxy, fault: str, at: int) -> None:
    """A write or a read comes through, or fails with an OSError and can be tried again."""
    for _ in range(2):
        proxy.faults.extend([""] * at + [fault])
        try:
            ref = bucket.store.put(SESSION, b"content", "a.txt")
        except OSError:
            proxy.faults.clear()
            ref = bucket.store.put(SESSION, b"content", "a.txt")
    for _ in range(2):
        proxy.faults.extend([""] * at + [fault])
        try:
            assert bucket.store.read(SESSION, ref) == b"content"
        except OSError:
            proxy.faults.clear()
            assert bucket.store.read(SESSION, ref) == b"content"
    assert bucket.files == 1


def test_a_store_that_is_away_is_an_os_error(bucket: Place, proxy: FlakyProxy) -> None:
    """Which everything that keeps or reads files is prepared for."""
    ref = bucket.store.put(SESSION, b"content", "a.txt")
    proxy.faults.extend(["cut"] * 1000)
    for call in (bucket.store.read, bucket.store.claim, bucket.store.open):
        with pytest.raises(ConnectionError, match="the store did not do it"):
            call(SESSION, ref)
    for work in (lambda: bucket.upload(SESSION, b"another"), bucket.store.expire):
        with pytest.raises(ConnectionError):
            work()
    proxy.faults.clear()
    assert bucket.store.read(SESSION, ref) == b"content"


def test_keys_are_hashes_and_numbers(bucket: Place) -> None:
    """No name that people choose is part of one: a chat id may be a phone number."""
    bucket.store.put("telegram:+4912345", b"text", "../../etc/passwd")
    content = r"media/content/[0-9a-f]{40}/[0-9a-f]{40}/[0-9a-f]{64}\.txt"
    state = r"media/state/[0-9a-f]{40}/[0-9a-f]{40}/[0-9a-f]{64}\.txt/\d+-4-(held|named)-[0-9a-f]{8}"
    assert [key for key in bucket.list_keys() if not re.fullmatch(f"{content}|{state}", key)] == []


def test_foreign_objects_below_the_prefix_disturb_nothing(bucket: Place) -> None:
    assert bucket.bucket is not None
    ref = bucket.store.put(SESSION, b"text", "a.txt")
    for key in ("media/state/readme", f"media/state/{'a' * 40}/{'b' * 40}/{'c' * 64}.txt/not-a-state"):
        bucket.bucket.put(key, b"what is this")
    assert bucket.store.expire() == 0
    assert bucket.store.read(SESSION, ref) == b"text"


def test_a_sender_who_was_given_up_has_an_orphan_at_most(bucket: Place, proxy: FlakyProxy) -> None:
    """The store is slow, and a message's time for its files is over while the content is written."""
    upload = bucket.store.upload(SESSION)
    upload.write(b"late")
    assert bucket.bucket is not None
    put = bucket.bucket.put

    class Slow:
        """The store, during whose write of content the block is left."""

        def __getattr__(self, name: str) -> object:
            return getattr(bucket.bucket, name)

        def put(self, key: str, data: bytes) -> None:
            put(key, data)
            if "/content/" in key:
                upload.__exit__()

    upload._files.__dict__["store"] = Slow()
    with pytest.raises(TimeoutError):
        upload.finish("a.txt")
    bucket.age(UNNAMED_S + 1)
    assert bucket.store.expire() == 1
    assert bucket.empty


async def test_the_store_is_tried_at_the_start(bucket: Place, proxy: FlakyProxy, tmp_path: Path) -> None:
    await check_store(bucket.settings)
    assert bucket.empty
    await check_store(MediaSettings(dir=tmp_path))
    missing = MediaSettings(store="s3://missing-bucket", store_endpoint=proxy.address)
    with pytest.raises(SettingsError, match=r"media\.store: there is no such bucket"):
        await check_store(missing)
    proxy.faults.extend(["cut"] * 20)
    with capture_logs() as logs:
        await check_store(bucket.settings)
    assert [line["event"] for line in logs] == ["media store away"]
