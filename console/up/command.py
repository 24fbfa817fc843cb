"""`shoal up`: all of Shoal on this machine, in the foreground. What `make up` runs."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import re
import secrets
import shlex
import signal
import socket
import sys
from pathlib import Path
from typing import Final

import click

from console.output import examples
from console.page import ADDRESS_FILE
from console.up.key_file import new_keys
from console.up.log_file import LogFile
from console.up.supervisor import Child, Reaper, Supervisor, Terminal
from shared.confinement.own_process import hide_process
from shared.embedded import EmbeddedValkey
from shared.errors import SettingsError
from shared.settings import Settings, child_environment, is_named, load, own_key_file
from shared.settings.layers import CONFIG_VARIABLE, DEFAULT_FILE
from shared.settings.sections.redis_access import EMBEDDED
from shared.settings.trust import trust_folder

_TOP: Final = Path(__file__).parents[2]
_TOKEN_FILE: Final = "web.token"  # noqa: S105 - the name of a file
_TOKENS_PER_DAY: Final = 2_000_000
"""Budget of a chat where the person names none: a loop of a model, or of a stranger, costs
money."""

_STEPS: Final = {"gateway": 0, "worker": 1, "valkey": 2}  # who ends first
_LOOK_S: Final = 0.1
_SETTINGS_LOOK_S: Final = 0.5
_FIRST_RUN: Final = "SHOAL_WEB__FIRST_RUN"
_REPLACE_KEY: Final = "SHOAL_WEB__REPLACE_KEY"
_QUIET_S = 0.5
_QUIET_WITHIN_S = 3.0


@click.command(epilog=examples("shoal up", "SHOAL_WEB__PORT=8081 shoal up"))
def up() -> None:
    """Start Shoal on this machine and stay in the foreground until Ctrl-C."""
    hide_process()
    settings = load()
    # Whoever starts it here has chosen these settings: other commands need not ask for that.
    with contextlib.suppress(OSError, RuntimeError):
        trust_folder()
    sys.exit(asyncio.run(serve(settings)))


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

    data = settings.data.dir.absolute()
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    port = _page_port(settings)
    token = _token(settings, data)
    processes, of_folder = _processes()
    environment = _environment(settings, port=port, data=data, colours=colours)
    if not of_folder:
        # `python -m gateway` of ours would otherwise run a `gateway.py` of the folder.
        environment["PYTHONSAFEPATH"] = "1"

    log = LogFile(data)
    terminal = Terminal(sys.stdout, colours=colours, closed=closed, log=log)
    reaper = Reaper()
    valkey = None
    if settings.redis.url.reveal() == EMBEDDED:
        valkey = EmbeddedValkey(data, spawned=lambda pid: reaper.watch(_STEPS["valkey"], pid))
    children = []
    for name, command in processes:
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
        page = f"http://{f'[{host}]' if ':' in host else host}:{port}/"
        address_file.write_text(f"{page}\n", encoding="utf-8")
        # The address is the last line, after those of the start: `shoal open` prints it again.
        await terminal.wait_quiet(_QUIET_S, within_s=_QUIET_WITHIN_S)
        if settings.model.name == "demo":
            real = "choose one on the page, or run" if environment.get(_FIRST_RUN) else "set model.name, or run"
            terminal.announce(f"The built-in demo model answers. For a real one {real} `shoal init`.")
        terminal.announce(f"Shoal is ready: {page}{f'#token={token}' if token else ''}")
        if environment.get(_FIRST_RUN):
            await _wait_for_settings()
            terminal.say("shoal", "settings were written: the gateway and the workers start again with them")
            for child in children:
                child.restart()
        if environment.get(_REPLACE_KEY):
            async for fault in new_keys():
                if fault:
                    # A process that cannot start with its settings would end all of them.
                    terminal.say("shoal", "the model's key was replaced, but cannot be used; what runs goes on:")
                    for line in fault.splitlines():
                        terminal.say("shoal", line)
                    continue
                terminal.say("shoal", "the model's key was replaced: the gateway and the workers start again with it")
                for child in children:
                    child.restart()

    terminal.say("shoal", f"starting; data is in {str(settings.data.dir)!r}, Ctrl-C stops")
    address_file = data / ADDRESS_FILE
    try:
        await supervisor.run(stop, announce)
    finally:
        address_file.unlink(missing_ok=True)
        log.close()
    if any(child.hopeless for child in children):
        return 2
    return 130 if cut_short else 0


async def _wait_for_settings() -> None:
    """Return when `shoal init`, of the page or of another terminal, has written the settings. It
    also trusts them."""
    while not DEFAULT_FILE.exists():  # noqa: ASYNC110 - another process writes it
        await asyncio.sleep(_SETTINGS_LOOK_S)


def _page_port(settings: Settings) -> int:
    host = settings.web.host
    port = settings.web.port
    try:
        return _free_port(host, port)
    except socket.gaierror as exc:
        raise SettingsError(
            f"web.host is {host!r}, which is not an address here: {exc.strerror}; try 127.0.0.1"
        ) from None
    except OSError as exc:
        what = "is taken" if exc.errno == errno.EADDRINUSE else f"cannot be used ({exc.strerror})"
        raise SettingsError(
            f"web.port {port} on {host!r} {what}; stop what uses it (perhaps another Shoal), "
            "or choose another one: SHOAL_WEB__PORT=8081 shoal up"
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
    if not is_named("budget", "tokens_per_day") and not settings.budget.usd_per_day:
        changes["SHOAL_BUDGET__TOKENS_PER_DAY"] = str(_TOKENS_PER_DAY)
    # Settings that the page's owner writes must be those that are read, and nothing may override
    # them.
    unset = not is_named("model", "name") and not child_environment({}).get(CONFIG_VARIABLE)
    if settings.model.name == "demo" and unset and not DEFAULT_FILE.exists():
        changes[_FIRST_RUN] = changes[_REPLACE_KEY] = "true"
    elif own_key_file(settings) is not None:
        changes[_REPLACE_KEY] = "true"
    if settings.log.format == "auto":
        changes["SHOAL_LOG__FORMAT"] = "console"
    if settings.log.colour == "auto":
        changes["SHOAL_LOG__COLOUR"] = "always" if colours else "never"
    return child_environment(changes)


def _processes() -> tuple[list[tuple[str, list[str]]], bool]:
    """Return each process's name and command, and whether this folder's Procfile names them. It
    counts if it has a gateway: other programs have a Procfile, too. Otherwise it is that of the
    checkout, or its copy in the installed package."""
    here = Path("Procfile")
    checkout = _TOP / "Procfile"
    installed = Path(__file__).with_name("Procfile")
    if here.exists() and re.search(r"^gateway\s*:", text := _text(here), re.MULTILINE):
        return _parse_procfile(text), True
    return _parse_procfile(_text(checkout if checkout.exists() else installed)), False


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError as exc:
        raise SettingsError(f"{str(file)!r} cannot be read: {exc.strerror}") from None


def _parse_procfile(text: str) -> list[tuple[str, list[str]]]:
    """Return each process's name and command; `python` is this interpreter."""
    processes = []
    for line in text.splitlines():
        name, colon, command = line.partition(":")
        if colon and not name.lstrip().startswith("#"):
            program, *arguments = shlex.split(command) or [""]
            program = sys.executable if program in ("python", "python3") else program
            processes.append((name.strip(), [program, *arguments]))
    return processes


async def _answers(host: str, port: int) -> None:
    """Return when the page has answered."""
    while True:
        try:
            reader, writer = await asyncio.open_connection(host, port)
            with contextlib.closing(writer):
                writer.write(f"GET / HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode())
                status = await reader.readline()
            if status.split()[1:2] == [b"200"]:
                return
        except OSError:
            pass
        await asyncio.sleep(_LOOK_S)
