"""Shows a chat on a terminal, by rich: Markdown that grows in place."""

from __future__ import annotations

import time
from typing import Final

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.markdown import Markdown
from rich.segment import Segment
from rich.text import Text

from console.chat.screen import Screen, shown_text
from shared.messages.web import ReplyFrame
from shared.terminal_text import clean, clean_line

_REST: Final = 4.0
"""A rendering is followed by a pause this many times as long, so that it never takes the CPU."""

_BELOW: Final = 8
"""Lines that a growing answer leaves to the prompt, what is typed and the status."""


class SafeMarkdown:
    """Markdown without control codes, hidden links or swallowed HTML."""

    def __init__(self, text: str) -> None:
        self._markdown = Markdown(clean(text), code_theme="ansi_dark", hyperlinks=False)
        for token in self._markdown.parsed:
            if token.type == "html_block":  # rich would leave it out
                token.type = "code_block"
            for child in token.children or ():
                if child.type == "html_inline":
                    child.type = "text"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self._markdown, options):
            if not segment.control:
                # Again: the text of a link has its percent signs decoded, whatever they stand for.
                style = segment.style.update_link(None) if segment.style else None
                yield Segment(clean(segment.text), style)


class _GrowingTail:
    """The last lines of a growing answer, as many as fit above `below` others. Renders again when
    the text has grown and the pause is over."""

    def __init__(self, below: int = 2) -> None:
        self.text = ""
        self._below = below
        self._drawn = ""
        self._lines: list[list[Segment]] = []
        self._not_before = 0.0

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        started = time.monotonic()
        if self.text != self._drawn and started >= self._not_before:
            self._drawn = self.text
            self._lines = console.render_lines(SafeMarkdown(self._drawn), options.update(height=None), pad=False)
            self._not_before = time.monotonic() + _REST * (time.monotonic() - started)
        if not self._lines:
            yield Text("…", style="dim")
        for line in self._lines[-max(1, console.height - self._below) :]:
            yield from line
            yield Segment.line()


class TerminalScreen(Screen):
    """A terminal: the answer grows in place, and the whole answer stays in the scrollback."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False, markup=False, emoji=False)
        self._tail = _GrowingTail()
        self._live: Live | None = None

    def user_message(self, text: str) -> None:
        self._console.print(Text(f"> {clean(text)}", style="bold"))

    def running(self, text: str) -> None:
        if self._live is None:
            self._tail = _GrowingTail()
            self._live = Live(
                self._tail,
                console=self._console,
                transient=True,
                refresh_per_second=10,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
        self._tail.text = text

    def progress(self, text: str) -> None:
        self._console.print(Text(f"· {clean_line(text)}", style="dim"))

    def reply(self, reply: ReplyFrame) -> None:
        # A remark in the middle of a turn stands above the text that goes on growing.
        if reply.kind != "notice" and (reply.kind != "command" or reply.turn):
            self.rest()
        if reply.kind == "apology":
            self._console.print(Text(clean(reply.text), style="yellow"))
        else:
            self._console.print(SafeMarkdown(shown_text(reply)))
        if reply.kind == "stopped":
            self.note("stopped")

    def note(self, text: str) -> None:
        self._console.print(Text(f"({clean_line(text)})", style="dim"))

    def keep(self) -> None:
        text = self._tail.text if self._live is not None else ""
        self.rest()
        if text:
            self._console.print(SafeMarkdown(text))

    def rest(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


class PromptScreen(TerminalScreen):
    """A terminal with a prompt at its bottom, which shows the growing answer above itself."""

    def __init__(self, console: Console | None = None) -> None:
        super().__init__(console)
        self._growing: _GrowingTail | None = None

    def above(self) -> str:
        """Return the lines for the prompt, with colours; `""` while nothing grows."""
        if self._growing is None or not self._growing.text:
            return ""
        with self._console.capture() as captured:
            self._console.print(self._growing, end="")
        return captured.get().rstrip("\n")

    def line(self, text: str) -> None:
        """Show one line as it is."""
        self._console.print(Text(clean_line(text)))

    def running(self, text: str) -> None:
        if self._growing is None:
            self._growing = _GrowingTail(_BELOW)
        self._growing.text = text

    def keep(self) -> None:
        text = self._growing.text if self._growing is not None else ""
        self.rest()
        if text:
            self._console.print(SafeMarkdown(text))

    def rest(self) -> None:
        self._growing = None
