"""Shell commands, in a sandbox and in the session's workspace."""

from __future__ import annotations

import asyncio
import hashlib
import signal
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from shared.errors import ToolFailed
from shared.ids import folder_name
from shared.log import logger
from shared.store.access.audit import NO_TRAIL, Audit
from shared.terminal_text import clean
from worker.agent.tools.text import cut
from worker.agent.tools.tool import Safety, ToolContext
from worker.guards.folder import Quota
from worker.guards.workspace import Workspace, Workspaces
from worker.sandbox.command import CommandLimits, Ending, Finished, Sandbox, SandboxBroken, SandboxCommand

LONGEST_S: Final = 600.0
AT_ONCE: Final = 8  # the most commands of a worker that run at a time; others wait
MEASURE_S: Final = 0.5  # interval at which the workspace is measured while a command runs
SHOWN_BYTES: Final = 4096  # the most output that is shown with a failure
_BEYOND_S: Final = 300.0
_OUT_OF_HAND: Final = 2
_WEB: Final = "with the public web through an HTTP proxy, which its environment names, and no other network"
_SIGNALLED: Final = 128

log = logger("exec")


class ExecArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """A command, and its time limit."""

    command: Annotated[str, Meta(min_length=1, max_length=32_000, description="A line, or a script, for the shell.")]
    timeout_s: Annotated[
        Annotated[float, Meta(ge=1, le=LONGEST_S)] | None,
        Meta(description="How many seconds it may take; leave it out for the usual time."),
    ] = None


class Exec:
    """Returns `exit code N` and the output, both streams in order."""

    name = "exec"
    parameters = ExecArguments
    safety: Safety = "unsafe"
    timeout_s = LONGEST_S + _BEYOND_S

    def __init__(
        self,
        sandbox: Sandbox,
        workspaces: Workspaces,
        *,
        limits: CommandLimits,
        network: bool = False,
        environment: Mapping[str, str] | None = None,
        audit: Audit = NO_TRAIL,
        skill_files: Callable[[], Mapping[str, bytes]] = dict,
    ) -> None:
        self._sandbox = sandbox
        self._audit = audit
        self._workspaces = workspaces
        self._limits = limits
        self._network = network
        self._environment = dict(environment or {})
        self._slots = asyncio.Semaphore(AT_ONCE)
        self.description = (
            "Run a command in a shell. It works in your workspace, on the same files as the file "
            f"tools, {_WEB if network else 'without network'}, for at most {limits.wall_s:g} s "
            "unless you ask for more; nothing goes on after it."
        )
        self._skill_files: Callable[[], Mapping[str, bytes]] = dict
        # A turn runs one command at a time. Those of its subagents run beside it: each would remove
        # the links to skills when it ends, so only the turn has them.
        self._for_subagents = copy(self)
        self._skill_files = skill_files
        self.description += (
            " It sees MEMORY.md and HISTORY.md as read-only copies: change MEMORY.md with edit_file or write_file. "
            "Programs of skills are there, too, at `skills/<name>/`, and cannot be changed."
        )

    def for_subagents(self) -> Exec:
        """Return this tool for subagents, whose description does not mention memory."""
        return self._for_subagents

    async def run(self, arguments: ExecArguments, context: ToolContext) -> str:
        if "\0" in arguments.command:
            raise ToolFailed("the command has a NUL character in it, which no shell accepts; write it without")
        began = context.clock.monotonic()
        outcome = "cancelled"  # stays so if neither a result nor a ToolFailed replaces it
        session = context.session
        turn = context.turn
        hashed = hashlib.blake2b(msgspec.json.encode(arguments), digest_size=8).hexdigest()
        # Recorded before the command runs, so that a lost worker cannot leave an unrecorded one.
        await self._audit.record("exec", "run", session=session, turn=turn, about=hashed)
        try:
            async with self._slots:
                finished = await self._fenced(arguments, context)
            outcome = finished.ended if finished.code is None else f"exit {finished.code}"
            return _render_result(finished, self._limits, arguments.timeout_s)
        except ToolFailed:
            outcome = "failed" if outcome == "cancelled" else outcome
            raise
        finally:
            seconds = round(context.clock.monotonic() - began, 3)
            about = {"outcome": outcome, "seconds": seconds, "tier": self._sandbox.tier}
            log.info("command ended", arguments=hashed, turn=turn, **about)

    async def _fenced(self, arguments: ExecArguments, context: ToolContext) -> Finished:
        """Run the command within its workspace's quota and its turn's lease."""
        workspace = self._workspaces.workspace_of(context.session, context.outside.folder)
        if workspace.granted and self._sandbox.tier == "runner":
            raise ToolFailed("commands cannot run in this folder: their runner sees workspaces only")
        folder = await workspace.create()
        quota, before_bytes = await _allowed(workspace)
        shown = dict(await context.outside.copies())
        skills = dict(await asyncio.to_thread(self._skill_files))
        if workspace.granted:  # they would be files in the operator's folder meanwhile
            shown = {}
            skills = {}
        since_ns = await workspace.disk_time_ns()
        wall_s = arguments.timeout_s or self._limits.wall_s
        command = SandboxCommand(
            what=arguments.command,
            folder=str(folder),
            session=folder_name(context.session),
            granted=workspace.granted,
            token=context.outside.token,
            fence=context.outside.fence,
            quota_bytes=quota.size_bytes,
            quota_files=quota.files + len(shown) + len(skills),  # their names are there meanwhile
            shown=shown,
            skills=skills,
            environment=self._environment,
            network=self._network,
            limits=msgspec.structs.replace(self._limits, wall_s=wall_s),
        )
        # Three things may end the command: its own end, the quota, or doubt about the lease. Each
        # has a task, and whichever is first ends the others.
        running = asyncio.create_task(self._sandbox.run(command))
        growing = asyncio.create_task(_until_over_quota(workspace, quota, before_bytes))
        doubting = asyncio.create_task(context.outside.until_doubtful())
        tasks: tuple[asyncio.Task[Any], ...] = (running, growing, doubting)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            ended = running.done() and not _out_of_room(running)
        finally:
            # The command must be dead before the turn goes on, also when this call is cancelled:
            # nothing may write to the workspace after it.
            await _cancel_and_wait(tasks)
        context.outside.mark_read()
        if not ended and doubting.done() and not doubting.cancelled():
            raise ToolFailed(
                "the command was ended: for a moment it was not certain that this worker still has "
                "the turn. What it did until then stands; look, then run it again"
            )
        # What the command wrote beyond the quota is removed before anybody else sees the workspace.
        gone, why = await workspace.restore_quota(quota, since_ns, before_bytes)
        if gone or not ended:
            why = why or "the workspace was over its quota, or part of it was closed"
            if growing.done() and not growing.cancelled():
                why = growing.result()
            raise ToolFailed(
                f"the command was ended, or its files were removed: {why}. Of what it wrote last, "
                f"{gone:,} files and folders are gone. Make room, or write less"
            )
        try:
            return running.result()
        except SandboxBroken as exc:
            raise ToolFailed(f"the sandbox failed: {exc}. Try again later, or go on without exec") from None


async def _allowed(workspace: Workspace) -> tuple[Quota, int]:
    """Return the quota, and the present size. A workspace that is over its quota, or whose person or
    disk has no room, may keep its size: a command may still delete."""
    quota = workspace.quota
    used = await workspace.measure()
    size_bytes = quota.size_bytes * _OUT_OF_HAND
    files = quota.files * _OUT_OF_HAND
    if used.unmeasurable or used.size_bytes > size_bytes or used.files > files:
        await workspace.restore_quota(quota, 0, quota.size_bytes)
        used = await workspace.measure()
    quota = msgspec.structs.replace(used.within(quota, used.size_bytes), files=max(quota.files, used.files))
    return quota, used.size_bytes


async def _until_over_quota(workspace: Workspace, quota: Quota, before_bytes: int) -> str:
    """Wait until the workspace is over its quota or cannot be measured, and return the reason."""
    while True:
        await asyncio.sleep(MEASURE_S)
        try:
            used = await workspace.measure()
        except ToolFailed as exc:
            return str(exc)
        if why := used.over(used.within(quota, before_bytes)):
            return why


def _out_of_room(running: asyncio.Task[Finished]) -> bool:
    failed = running.cancelled() or running.exception() is not None
    return not failed and running.result().ended == "room"


async def _cancel_and_wait(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel unfinished tasks and wait for them, however often this is cancelled meanwhile."""
    pending = {task for task in tasks if not task.done()}
    for task in pending:
        task.cancel()
    cancelled = False
    while pending:
        try:
            _, pending = await asyncio.wait(pending)
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        raise asyncio.CancelledError


def _render_result(finished: Finished, limits: CommandLimits, asked_s: float | None) -> str:
    """Return the result of a command as text. Raises ToolFailed for one that hit a limit."""
    # A carriage return alone (a progress bar) ends a line here, or two states would run together.
    output = finished.output.decode("utf-8", "replace")
    text = clean(output.replace("\r\n", "\n").replace("\r", "\n"))
    if finished.ended == "exit":
        code = finished.code or 0
        named = _signal_name(code - _SIGNALLED)
        return f"exit code {code}{f' ({named})' if named else ''}\n{text or '(no output)'}"
    shown = cut(text, SHOWN_BYTES, rest="send long output to a file") if text else "(nothing)"
    why = _why(finished, limits, asked_s or limits.wall_s)
    raise ToolFailed(f"{why}. Its output until then:\n{shown}")


def _why(finished: Finished, limits: CommandLimits, wall_s: float) -> str:
    megabytes = limits.memory_bytes // 2**20
    reasons: dict[Ending, tuple[str, str]] = {
        "signal": (f"was ended by {_signal_name(finished.signal or 0) or 'a signal'}", ""),
        "wall": (
            f"took more than {wall_s:g} s",
            f"ask for more time (up to {LONGEST_S:g} s), or do it in smaller steps",
        ),
        "cpu": (f"used more than {limits.cpu_s} s of processor time", "do it in smaller steps"),
        "memory": (f"used more than {megabytes:,} MB of memory", "work on less at a time"),
        "processes": (f"started more than {limits.processes} processes", "start fewer"),
        "output": (
            f"wrote more than {limits.output_bytes:,} bytes",
            "send its output to a file and read parts of that",
        ),
    }
    if finished.ended == "room":
        return "the workspace was over its quota, and the command was ended; make room, or write less"
    what, advice = reasons[finished.ended]
    return f"the command {what}" + (f" and was ended; {advice}" if advice else "")


def _signal_name(number: int) -> str:
    return next((one.name for one in signal.Signals if one == number), "")
