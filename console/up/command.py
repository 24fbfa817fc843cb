"""`shoal up`: all of Shoal on this machine, in the foreground. What `make up` runs."""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
import shlex
import signal
import socket
import sys
from pathlib import Path
from typing import Final

import click

from console.output import examples
from console.up.supervisor import Child, Reaper, Supervisor, Terminal
from shared.embedded import EmbeddedValkey
from shared.errors import SettingsError
from shared.settings import Settings, child_environment, load
from shared.settings.sections.redis_access import EMBEDDED

_TOKEN_FILE: Final = "web.token"  # noqa: S105 - the name of a file
_STEPS: Final = {"gateway": 0, "worker": 1, "valkey": 2}  # who ends first
_LOOK_S: Final = 0.1


@click.command(epilog=examples("shoal up", "SHOAL_WEB__PORT=8081 shoal up"))
def up() -> None:
    """Start Shoal on this machine and stay in the foreground until Ctrl-C."""
    sys.exit(asyncio.run(serve(load())))


async def serve(settings: Settings) -> int:
    """Run everything until SIGINT, SIGTERM or SIGHUP; 0 when all ended in order, 130 when it was
    cut short.

    Raises SettingsError when the page's port is taken, EmbeddedFailed when Valkey does not start.
    """
    stop = asyncio.Event()
    colours = sys.stdout.isatty()

    def closed() -> None:
        """End in order when the reader of our output is gone (`make up | head`), and let nothing
        else fail on that pipe."""
        stop.set()
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    terminal = Terminal(sys.stdout, colours=colours, closed=closed)
    data = settings.data.dir.absolute()
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    port = _page_port(settings)
    token = _token(settings, data)
    environment = _environment(settings, port=port, data=data, colours=colours)

    reaper = Reaper()
    valkey = None
    if settings.redis.url.reveal() == EMBEDDED:
        valkey = EmbeddedValkey(data, spawned=lambda pid: reaper.watch(_STEPS["valkey"], pid))
    children = []
    for name, command in _procfile():
        own = {**environment, "SHOAL_METRICS__PORT": str(_metrics_port(settings, name))}
        step = _STEPS.get(name, 1)
        children.append(Child(name, command, own, step, terminal.say, reaper, stop))
    drain_s = settings.worker.drain_s + 5.0
    supervisor = Supervisor(children, valkey, terminal, reaper, drain_s)
    cut_short = False

    def on_signal() -> None:
        nonlocal cut_short
        if stop.is_set():
            cut_short = True
            supervisor.kill()
        stop.set()

    for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(sig, on_signal)

    async def announce() -> None:
        # At this address a browser on this machine finds the page.
        host = settings.web.host
        if host in ("0.0.0.0", "::", ""):  # noqa: S104 - compared, not listened on
            host = "127.0.0.1"
        await _answers(host, port)
        fragment = f"#token={token}" if token else ""
        shown = f"[{host}]" if ":" in host else host
        terminal.announce(f"Shoal is ready: http://{shown}:{port}/{fragment}")
        if settings.model.name == "demo":
            terminal.announce(
                "The built-in demo model answers. For a real one set SHOAL_MODEL__NAME "
                "(anthropic/..., openai/...) and SHOAL_MODEL__API_KEY, and start again."
            )

    terminal.say("shoal", f"starting; data is in {str(settings.data.dir)!r}, Ctrl-C stops")
    await supervisor.run(stop, announce)
    if any(child.hopeless for child in children):
        return 2
    return 130 if cut_short else 0


def _page_port(settings: Settings) -> int:
    host, port = settings.web.host, settings.web.port
    try:
        return _free_port(host, port)
    except socket.gaierror as exc:
        why = f"which is no address here: {exc.strerror}; try 127.0.0.1"
        raise SettingsError(f"web.host is {host!r}, {why}") from None
    except OSError as exc:
        what = "is taken" if exc.errno == errno.EADDRINUSE else f"cannot be used ({exc.strerror})"
        raise SettingsError(
            f"web.port {port} on {host!r} {what}; stop what uses it (perhaps another Shoal), "
            "or choose another one: SHOAL_WEB__PORT=8081 make up"
        ) from None


def _metrics_port(settings: Settings, name: str) -> int:
    """The process's own default when it is free, else any. One that was set is the gateway's; the
    worker gets any."""
    metrics = settings.metrics
    if metrics.port is not None or name not in ("gateway", "worker"):
        return metrics.port or 0 if name == "gateway" else 0
    try:
        return _free_port(metrics.host, metrics.port_of("gateway" if name == "gateway" else "worker"))
    except OSError:
        return 0


def _free_port(host: str, port: int) -> int:
    """`port`, or for 0 a free one. Raises OSError when it cannot be listened on."""
    family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))
        return int(probe.getsockname()[1])


def _token(settings: Settings, data: Path) -> str | None:
    """The owner's token: the one set, else one made once; None when only others have tokens."""
    if settings.web.token:
        return settings.web.token.reveal()
    if settings.web.tokens:
        return None
    file = data / _TOKEN_FILE
    try:
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
            out.write(secrets.token_urlsafe(24) + "\n")
    except FileExistsError:
        file.chmod(0o600)
    return file.read_text(encoding="utf-8").strip()


def _environment(settings: Settings, *, port: int, data: Path, colours: bool) -> dict[str, str]:
    changes = {"PYTHONUNBUFFERED": "1", "SHOAL_WEB__PORT": str(port)}
    if not settings.web.token and not settings.web.tokens:
        changes["SHOAL_WEB__TOKEN_FILE"] = str(data / _TOKEN_FILE)
    if settings.log.format == "auto":
        changes["SHOAL_LOG__FORMAT"] = "console"
    if settings.log.colour == "auto":
        changes["SHOAL_LOG__COLOUR"] = "always" if colours else "never"
    return child_environment(changes)


def _procfile() -> list[tuple[str, list[str]]]:
    """Each process's name and command; `python` is this interpreter."""
    here, ours = Path("Procfile"), Path(__file__).parents[2] / "Procfile"
    file = here if here.exists() else ours
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError as exc:
        why = f"cannot be read: {exc.strerror}; run this in Shoal's folder"
        raise SettingsError(f"{str(file)!r} {why}") from None
    processes = []
    for line in lines:
        name, colon, text = line.partition(":")
        if colon and not name.lstrip().startswith("#"):
            program, *arguments = shlex.split(text) or [""]
            program = sys.executable if program in ("python", "python3") else program
            processes.append((name.strip(), [program, *arguments]))
    return processes


async def _answers(host: str, port: int) -> None:
    """Return when the page has answered."""
    while True:
        try:
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(f"GET / HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode())
            status = await reader.readline()
            writer.close()
            if status.split()[1:2] == [b"200"]:
                return
        except OSError:
            pass
        await asyncio.sleep(_LOOK_S)
