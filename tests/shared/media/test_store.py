"""Stored files: what is taken, what is refused and why, and when they go."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import BadInput
from shared.ids import folder_name
from shared.media.disk import PEOPLE, DiskFloor, DiskFull
from shared.media.files import DAY_S, MediaNotFound, MediaTooBig
from shared.media.reference import MediaRef, clean_name, read_file_name, read_reference
from shared.media.store import MediaStore
from shared.settings import MediaSettings
from tests.helpers import media_files as made

SESSION = "web:owner/a"
OTHER = "web:ann/a"


@pytest.fixture
def store(tmp_path: Path) -> MediaStore:
    return MediaStore(MediaSettings(dir=tmp_path / "media", file_mb=1, session_mb=2))


def files(tmp_path: Path) -> list[Path]:
    found = (path for path in (tmp_path / "media").rglob("*") if path.is_file())
    return sorted(path for path in found if PEOPLE not in path.parts)


def age(tmp_path: Path, seconds: float) -> None:
    """Make everything that is stored older."""
    for path in files(tmp_path):
        then = path.stat().st_mtime - seconds
        os.utime(path, (then, then))


@pytest.mark.parametrize(
    ("data", "suffix"),
    [
        (made.png(), "png"),
        (made.jpeg(), "jpg"),
        (made.gif(), "gif"),
        (made.webp(), "webp"),
        (made.webp_lossless(), "webp"),
        (made.webp_lossy(), "webp"),
        (made.PDF, "pdf"),
        (made.archive("[Content_Types].xml", "word/document.xml"), "docx"),
        (made.archive("xl/workbook.xml"), "xlsx"),
        (made.archive("ppt/presentation.xml"), "pptx"),
        ("grüße, <script>".encode(), "txt"),
        (b"BMW and ID3 and MZ are words", "txt"),
        (b"ID3\x03\x00" + b"\x00" * 20, "mp3"),
        (b"OggS\x00\x02", "ogg"),
        (b"RIFF\x24\x00\x00\x00WAVEfmt ", "wav"),
        (b"fLaC\x00\x00", "flac"),
        (b"\x00\x00\x00\x20ftypM4A \x00", "m4a"),
        (b"\x00\x00\x00\x20ftypiso5\x00\x00\x02\x00moov" + b"hdlr" + b"\x00" * 8 + b"soun", "m4a"),
        (b"\x1aE\xdf\xa3\x01\x00\x00\x00B\x82\x84webm\x86\x88A_OPUS", "webm"),
    ],
)
def test_what_a_file_is_its_bytes_say(store: MediaStore, data: bytes, suffix: str) -> None:
    """Whatever it is called; it comes back byte for byte under a reference that says what it is."""
    ref = store.put(SESSION, data, "evil.html")
    assert (ref.suffix, ref.size_bytes, ref.name) == (suffix, len(data), "evil.html")
    assert read_reference(str(ref)) == ref
    assert store.read(SESSION, ref) == data


BOMBS: dict[str, tuple[bytes, str]] = {
    "a picture of too many pixels (PNG)": (made.png(40_000, 40_000), "40,000 x 40,000 pixels"),
    "a picture of too many pixels (JPEG)": (made.jpeg(60_000, 60_000), "pixels"),
    "a picture of too many pixels (GIF)": (made.gif(65_535, 65_535), "pixels"),
    "a picture of too many pixels (WebP)": (made.webp(16_384, 16_384), "pixels"),
    "a picture of too many pixels (lossless)": (made.webp_lossless(16_384, 16_384), "pixels"),
    "a picture of too many pixels (lossy)": (made.webp_lossy(16_383, 16_383), "pixels"),
    "a picture without a size": (made.png(0, 5), "damaged"),
    "a picture that ends in its header": (made.png()[:18], "damaged"),
    "a picture without a frame": (b"\xff\xd8\xff\xe0\x00\x04xx\xff\xd9", "damaged"),
    "a picture whose segments lead nowhere": (b"\xff\xd8\xff\xe0\x00\x00\x00", "damaged"),
    "a document that grows": (made.archive("word/document.xml", body=b"0" * 3_000_000), "grows more than"),
    "a document of too many parts": (
        made.archive("word/document.xml", *(str(n) for n in range(5001)), body=b""), "5,002 parts",
    ),
    "a document cut short": (made.archive("word/document.xml")[:-10], "damaged"),
    "an archive": (made.archive("a.txt"), "zip archive"),
    "a gzip archive": (b"\x1f\x8b\x08\x00\x00", "gzip"),
    "a program": (b"\x7fELF\x02\x00", "a program"),
    "an old document": (bytes.fromhex("d0cf11e0a1b11ae1") + b"\x00", "old Office"),
    "nothing": (b"", "empty"),
    "noise": (b"\x00\x01\xfe\xff", "not taken"),
}  # fmt: skip


@pytest.mark.parametrize("what", BOMBS)
def test_bombs_and_strange_files_are_refused_with_a_reason(store: MediaStore, tmp_path: Path, what: str) -> None:
    """`file refused: <reason>`, and nothing is left of it (security row 27)."""
    data, reason = BOMBS[what]
    with pytest.raises(BadInput, match=r"^file refused: ") as refused:
        store.put(SESSION, data, "a.png")
    assert reason in refused.value.message
    assert refused.value.code == "file_refused"
    assert files(tmp_path) == []


def test_an_archive_that_lies_about_a_huge_part_is_refused(store: MediaStore) -> None:
    """What it says of itself is enough."""
    data = bytearray(made.archive("word/document.xml"))
    at = data.index(b"PK\x01\x02")
    data[at + 24 : at + 28] = b"\xff\xff\xff\xff"
    with pytest.raises(BadInput, match="unpacks to more than"):
        store.put(SESSION, bytes(data), "a.docx")


@given(
    st.sampled_from([b"", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"RIFF....WEBPVP8L", b"PK\x03\x04", b"GIF89a"]),
    st.binary(),
)
def test_every_file_is_accepted_or_refused(tmp_path_factory: pytest.TempPathFactory, head: bytes, rest: bytes) -> None:
    """No bytes make the look at them fail, or last."""
    store = MediaStore(MediaSettings(dir=tmp_path_factory.getbasetemp()))
    with contextlib.suppress(BadInput):
        store.check(head + rest)


def test_a_file_over_the_limit_is_refused_as_soon_as_that_is_known(store: MediaStore, tmp_path: Path) -> None:
    """To the byte, and without its end."""
    with store.upload(SESSION) as upload:
        upload.write(b"a" * 1024 * 1024)
        with pytest.raises(MediaTooBig, match="larger than 1 MB"):
            upload.write(b"a")
    assert files(tmp_path) == []


def test_a_session_has_at_most_so_much(store: MediaStore, tmp_path: Path) -> None:
    """The same file again takes no more; another session is not concerned."""
    whole = 1024 * 1024
    store.put(SESSION, b"a" * whole, "a")
    store.put(SESSION, b"b" * (whole - 1), "b")
    with pytest.raises(MediaTooBig, match="more than 2 MB"):
        store.put(SESSION, b"cc", "c")
    store.put(OTHER, b"cc", "c")
    assert len(files(tmp_path)) == 3


def test_a_disk_is_never_filled_to_the_end(tmp_path: Path) -> None:
    """Each person has their limit, but there may be many people; messages may be on the same disk."""
    full = MediaStore(MediaSettings(dir=tmp_path / "media"), floor=DiskFloor(2**62, 1.0))
    with pytest.raises(DiskFull, match="No space left") as caught:
        full.put(SESSION, b"hello", "a.txt")
    assert caught.value.errno == errno.ENOSPC
    assert list((tmp_path / "media").rglob("*")) == []


def test_a_file_is_of_its_session_alone(store: MediaStore) -> None:
    """Another session does not find it, with the very same reference."""
    ref = store.put(SESSION, b"secret", "a.txt")
    for ask in (store.read, store.size):
        with pytest.raises(MediaNotFound):
            ask(OTHER, ref)


def test_files_expire_and_a_sweep_takes_them_away(store: MediaStore, tmp_path: Path) -> None:
    """After `media.days` it is not there any more, also before the sweep comes; folders go with their last file."""
    ref = store.put(SESSION, b"old", "a.txt")
    store.upload(OTHER)._part.file.close()  # a process died in the middle of an upload
    assert store.expire() == 0
    age(tmp_path, 30 * DAY_S + 1)
    with pytest.raises(MediaNotFound):
        store.read(SESSION, ref)
    young = store.put(SESSION, b"new", "b.txt")
    assert store.expire() == 2
    assert store.read(SESSION, young) == b"new"
    age(tmp_path, 30 * DAY_S + 1)
    assert store.expire() == 1
    assert list((tmp_path / "media").iterdir()) == []


def test_a_file_that_is_sent_again_is_young_again(store: MediaStore, tmp_path: Path) -> None:
    """Its new line can be opened as long as any other."""
    store.put(SESSION, b"same", "a.txt")
    age(tmp_path, 29 * DAY_S)
    ref = store.put(SESSION, b"same", "b.txt")
    age(tmp_path, 2 * DAY_S)
    assert store.read(SESSION, ref) == b"same"


def test_forgetting_a_session_leaves_what_comes_after(store: MediaStore, tmp_path: Path) -> None:
    """And what others have."""
    store.put(SESSION, b"before", "a.txt")
    kept = store.put(OTHER, b"theirs", "a.txt")
    now = max(path.stat().st_mtime for path in files(tmp_path))
    age(tmp_path, 10)
    after = store.put(SESSION, b"after", "b.txt")
    assert store.forget(folder_name(SESSION), before_s=now - 5) == 1
    assert store.read(SESSION, after) == b"after"
    assert store.read(OTHER, kept) == b"theirs"
    assert store.forget(folder_name("web:nobody/a"), before_s=now) == 0
    with pytest.raises(ValueError, match="folder of no session"):
        store.forget("../..", before_s=now)


@pytest.mark.parametrize(("root", "mode"), [(0o700, 0o600), (0o770, 0o660)])
def test_files_are_private_unless_the_volume_is_shared(tmp_path: Path, root: int, mode: int) -> None:
    """A group that may write the folder of all may have the files, whatever the umask says."""
    (tmp_path / "media").mkdir()
    (tmp_path / "media").chmod(root)
    before = os.umask(0o077)
    try:
        MediaStore(MediaSettings(dir=tmp_path / "media")).put(SESSION, b"text", "a.txt")
    finally:
        os.umask(before)
    [file] = files(tmp_path)
    assert stat.S_IMODE(file.stat().st_mode) == mode
    assert stat.S_IMODE(file.parent.stat().st_mode) == (0o770 if root == 0o770 else 0o700)


@pytest.mark.parametrize(
    ("name", "clean"),
    [
        ("plan.pdf", "plan.pdf"),
        ("../../etc/passwd", "passwd"),
        ("C:\\Users\\ann\\plan.pdf", "plan.pdf"),
        ("a\x00b\u202egnp.exe", "abgnp.exe"),
        ("..", "file"),
        ("", "file"),
        ("x" * 200 + ".pdf", "x" * 76 + ".pdf"),
        ("grüße.txt", "grüße.txt"),
    ],
)
def test_a_name_is_for_people_and_never_a_path(name: str, clean: str) -> None:
    """Only its last part is kept, of characters that show."""
    assert clean_name(name) == clean
    ref = MediaRef("0" * 64, "txt", 1, clean_name(name))
    assert read_reference(str(ref)) == ref


@pytest.mark.parametrize(
    "text",
    [
        "", "media:", "data:image/png;base64,AA==", "media:../../etc/passwd.txt;1;a", f"media:{'g' * 64}.txt;1;a",
        f"media:{'0' * 64}.exe;1;a", f"media:{'0' * 64}.txt;-1;a", f"media:{'0' * 64}.txt;1",
        f"media:{'0' * 64}.txt;1;a;b", f" media:{'0' * 64}.txt;1;a", f"media:{'0' * 63}.txt;1;a",
    ],
)  # fmt: skip
def test_what_is_no_reference_is_refused(text: str) -> None:
    """Nothing that a client writes becomes a path."""
    with pytest.raises(BadInput):
        read_reference(text)


@pytest.mark.parametrize(
    "name", ["", "a.txt", f"{'0' * 64}", f"{'0' * 64}.exe", f"../{'0' * 61}.txt", f"{'A' * 64}.txt"]
)
def test_only_the_name_of_a_stored_file_is_looked_for(name: str) -> None:
    """64 hexadecimal digits and a suffix that is known."""
    assert read_file_name(name) is None
    read: Callable[[str], object] = read_file_name
    assert read(f"{'0' * 64}.txt") == ("0" * 64, "txt")
