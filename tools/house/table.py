"""The counts by which we judge how readable the code is, each with the value that we want.

A limit moves only in a commit that says why. That of the product's size moves with what a new
capability earns, and no further.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tools.house import comments, names, rooms, sentences, size, style
from tools.house.counting import Count
from tools.house.files import House


@dataclass(frozen=True, kw_only=True)
class Row:
    """One count of the code. A row without a limit is for information."""

    title: str
    count: Callable[[House], Count]
    limit: float | None = None
    at_least: bool = False
    unit: str = ""

    def accepts(self, value: float) -> bool:
        """Return whether a value is on the right side of the limit."""
        return self.limit is None or (value >= self.limit if self.at_least else value <= self.limit)


WORDS: Final = (
    Row(
        title="class names defined more than once",
        count=names.doubled_classes,
        limit=0,
    ),
    Row(
        title="class names repeated in channels alone",
        count=names.doubled_channel_classes,
        limit=25,
    ),
    Row(
        title="banned identifiers in the product",
        count=names.banned_in_product,
        limit=0,
    ),
    Row(
        title="banned identifiers in tests",
        count=names.banned_in_tests,
        limit=0,
    ),
    Row(
        title="function names defined more than 15 times",
        count=names.doors,
        limit=0,
    ),
    Row(
        title="docstrings that begin with a question word",
        count=sentences.indirect_docstrings,
        limit=3,
        unit="%",
    ),
    Row(
        title="docstrings of tests that do",
        count=sentences.indirect_test_docstrings,
        unit="%",
    ),
    Row(
        title="comment lines in Python",
        count=comments.python_comment_lines,
        limit=2 * 126,
        at_least=True,
    ),
    Row(
        title="lines of Python that end in a comment",
        count=comments.python_line_ends,
    ),
    Row(
        title="comment lines in Lua",
        count=comments.lua_comment_lines,
        limit=2 * 519,
        at_least=True,
    ),
    Row(
        title="lines of Lua that end in a comment",
        count=comments.lua_line_ends,
    ),
)

STYLE: Final = (
    Row(title="assignments to several names at once", count=style.parallel_assignments, limit=1, unit="%"),
    Row(title="messages cut into a name and a rest", count=style.cut_messages, limit=8),
)

ROOMS: Final = (
    Row(title="folders of more than 15 loose files", count=rooms.full_folders, limit=0),
    Row(title="gateway: rooms", count=rooms.rooms("gateway"), limit=20),
    Row(title="gateway: floors", count=rooms.floors("gateway")),
    Row(title="gateway: arrows", count=rooms.arrows("gateway"), limit=45),
    Row(title="gateway: arrows up", count=rooms.arrows_up("gateway"), limit=0),
    Row(title="worker: rooms", count=rooms.rooms("worker"), limit=22),
    Row(title="worker: floors", count=rooms.floors("worker")),
    Row(title="worker: arrows", count=rooms.arrows("worker"), limit=70),
    Row(title="worker: arrows up", count=rooms.arrows_up("worker"), limit=0),
    Row(title="console: rooms", count=rooms.rooms("console"), limit=21),
    Row(title="console: floors", count=rooms.floors("console")),
    Row(title="console: arrows", count=rooms.arrows("console"), limit=40),
    Row(title="console: arrows up", count=rooms.arrows_up("console"), limit=0),
    Row(title="shared: rooms", count=rooms.rooms("shared")),
    Row(title="shared: floors", count=rooms.floors("shared")),
    Row(title="shared: arrows", count=rooms.arrows("shared")),
    Row(title="shared: arrows up", count=rooms.arrows_up("shared"), limit=0),
    Row(title="circles of files that import each other", count=rooms.file_circles, limit=0),
)

SIZE: Final = (
    # A statement for each name (see STYLE) made files longer by a hundredth.
    Row(title="lines of a Python file, median", count=size.median_length, limit=122),
    Row(title="lines of a Python file, 95 of 100", count=size.p95_length, limit=300),
    Row(title="lines over 100 columns", count=size.wide_lines, limit=3.3, unit="%"),
    Row(title="places that switch the formatter off", count=comments.formatter_skips, limit=14),
    Row(
        title="lines of the product, all languages",
        count=size.product_lines,
        # 4,000 below where the clean-up began, which it reached (59,214), and what was built since:
        # fail-over of Redis, broken keys, a spare worker, logs that lost their tail, sandbox memory;
        # then trust: marks of strangers' text, limits for strangers, quotas, a proxy for commands;
        # then `shoal init`, agents from Python, archives of chats, their own files, tools of clients;
        # then Sentinels, the card of the first run, answers in the form that a client asks for;
        # then a company's proxy and authority, code and formulas on the page, the terminal;
        # then workspaces in S3, the Responses API, chats that one deletes, names, searches and exports;
        # then voice, messages answered anew, media in S3, a cluster's component, work logs, share links;
        # then what providers, MCP servers, platforms and files really send, answers that go on;
        # then Responses, and one feed a person; then Responses in the background and streams that go on;
        # then functions of a client; yeses that stand, what a call touches, and where it was answered;
        # then the agent as an MCP server, and titles of chats by the model; a statement for each name;
        # then branches of chats, and ratings of answers (600);
        # then the settings of the page: a person's work and usage, models, the installation (1,650);
        # then the stream of the AI SDK, which pages resume at any gateway (400);
        # then AG-UI, whose runs go on at any gateway (450);
        # then webhooks, in and out (1,100);
        # then conversations of responses that fork (850).
        limit=64_153 + 29_950,
    ),
    Row(title="lines of the product, Python", count=size.python_lines),
    Row(title="lines of tests, Python", count=size.lines_of_tests),
    Row(title="constants RENEWALS_PER_LEASE", count=names.lease_constants, limit=1),
)

SECTIONS: Final = {"Words": WORDS, "Style": STYLE, "Rooms": ROOMS, "Size": SIZE}
