"""What was sent along is put where the agent can get at it before its turn; nothing of it ends a turn."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.media.reference import MediaRef
from shared.media.store import MediaStore
from shared.messages.transcript import UserEntry
from shared.settings import MediaSettings
from tests.helpers.build import message
from tests.helpers.media_files import PDF, png
from worker.agent.model.model import Image
from worker.agent.ports import FollowupMessage
from worker.documents.images import IMAGE_LIMIT_BYTES
from worker.guards.folder import Quota
from worker.guards.workspace import Workspace, Workspaces
from worker.turn.attachments import Attachments, TurnAttachments
from worker.turn.conversation import JoinedMessage

SESSION = "web:owner/a"


class Desk:
    """A media store and a workspace."""

    def __init__(self, folder: Path, *, quota_bytes: int = 64 * 1024 * 1024) -> None:
        self.store = MediaStore(MediaSettings(dir=folder / "media"))
        self.workspaces = Workspaces(folder / "workspaces", Quota(quota_bytes, 100, 86_400))
        self.workspace: Workspace = self.workspaces.workspace_of(SESSION)
        self.attachments = Attachments(self.store)

    def close(self) -> None:
        self.workspaces.close()
        self.attachments.close()

    def put(self, data: bytes, name: str) -> str:
        return str(self.store.put(SESSION, data, name))

    async def bring(self, *media: str, turn: int = 3) -> tuple[tuple[Image, ...], tuple[str, ...]]:
        return await self.attachments.load(SESSION, media, turn, self.workspace)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.close()


async def test_pictures_are_seen_and_files_lie_in_the_workspace(desk: Desk) -> None:
    """Under safe names that no two share; a note says where, and what each is."""
    images, notes = await desk.bring(
        desk.put(png(), "holiday.png"),
        desk.put(PDF, "../Plan für März.pdf"),
        desk.put(PDF + b"\n", "Plan-f-r-M-rz.pdf"),
        desk.put(b"a,b\n1,2\n", "table.csv"),
        desk.put(b"<script>", "x.html\u202e; rm -rf"),
    )
    assert images == (Image("image/png", png()),)
    assert [note.rpartition("; ")[2] for note in notes] == [
        "it is the file 'inbox/3-Plan-f-r-M-rz.pdf']",
        "it is the file 'inbox/3-Plan-f-r-M-rz-2.pdf']",
        "it is the file 'inbox/3-table.csv']",
        "it is the file 'inbox/3-x.txt']",
    ]
    assert await desk.workspace.read_file("inbox/3-Plan-f-r-M-rz.pdf") == PDF
    assert await desk.workspace.read_file("inbox/3-Plan-f-r-M-rz-2.pdf") == PDF + b"\n"
    assert await desk.workspace.read_file("inbox/3-table.csv") == b"a,b\n1,2\n"
    assert notes[0].startswith("[file: Plan für März.pdf, PDF document, 1 kB; ")


async def test_a_file_that_an_earlier_attempt_brought_is_left_as_it_is(desk: Desk) -> None:
    """The agent may have changed it by then."""
    reference = desk.put(b"old", "a.txt")
    await desk.bring(reference)
    await desk.workspace.write_file("inbox/3-a.txt", b"changed")
    await desk.bring(reference)
    assert await desk.workspace.read_file("inbox/3-a.txt") == b"changed"
    await desk.bring(reference, turn=4)
    assert await desk.workspace.read_file("inbox/4-a.txt") == b"old"


async def test_what_is_not_there_any_more_becomes_a_note(desk: Desk, tmp_path: Path) -> None:
    """Expired, forgotten, of another session, or never there: the turn goes on."""
    expired = desk.put(b"old", "a.txt")
    [file] = (tmp_path / "media").rglob("*.txt")
    os.utime(file, (0, 0))
    foreign = str(desk.store.put("web:ann/a", b"hers", "b.txt"))
    never = str(MediaRef("0" * 64, "png", 5, "c.png"))
    images, notes = await desk.bring(expired, foreign, never, "media:nonsense")
    assert images == ()
    assert [note.partition("; ")[2] for note in notes[:3]] == ["it is not there any more]"] * 3
    assert notes[3] == "[an attachment could not be read]"


async def test_a_full_workspace_is_reported_and_ends_nothing(tmp_path: Path) -> None:
    """The quota holds for what people send, too."""
    desk = Desk(tmp_path, quota_bytes=100)
    _, [note] = await desk.bring(desk.put(b"x" * 101, "big.txt"))
    assert "could not be put into the workspace" in note
    desk.close()


async def test_a_large_file_is_brought_whole(desk: Desk) -> None:
    """Up to `media.file_mb`: more than the agent may write itself. A picture that no model takes is a file, too."""
    text, picture = b"x" * 9_000_000, png() + b"\0" * IMAGE_LIMIT_BYTES
    images, notes = await desk.bring(desk.put(text, "big.txt"), desk.put(picture, "big.png"))
    assert images == ()
    assert await desk.workspace.read_file("inbox/3-big.txt") == text
    assert await desk.workspace.read_file("inbox/3-big.png") == picture
    assert len(notes) == 2


class Joining:
    """Messages that join a turn."""

    open = True

    def __init__(self, joined: dict[int, JoinedMessage], *new: tuple[int, JoinedMessage]) -> None:
        self._joined = joined
        self._new = new

    async def claim(self) -> list[FollowupMessage]:
        self._joined.update(self._new)
        return [one.followup for _, one in self._new]


async def test_a_message_that_joins_a_turn_brings_its_files(desk: Desk) -> None:
    """As the first one does; what joined an earlier attempt is brought again."""

    def joined(text: str, *media: str) -> JoinedMessage:
        came = message(text)
        came = type(came)(**{name: getattr(came, name) for name in came.__struct_fields__} | {"media": media})
        return JoinedMessage(came, FollowupMessage(UserEntry(content=text, turn=1)))

    earlier = {2: joined("earlier", desk.put(b"one", "one.txt"))}
    attached = TurnAttachments(
        desk.attachments,
        desk.workspace,
        Joining(earlier, (4, joined("now", desk.put(png(), "p.png"))), (5, joined("plain"))),
        earlier,
    )
    await attached.load_joined()
    assert "inbox/2-one.txt" in earlier[2].followup.entry.content
    with_picture, plain = await attached.claim()
    assert with_picture.images == (Image("image/png", png()),)
    assert plain.entry.content == "plain"
    assert earlier[4].followup is with_picture, "history keeps what the agent saw"
