"""What a slim image does without, taken out of its environment: `python -I .ci/slim.py <environment> <pyproject.toml>`.

That is LiteLLM except its table of prices (models with OpenAI's protocol are called directly), and the readers of
documents and web pages, with the packages that nothing else needs. Standard library only.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

LEFT_OUT = {"litellm", "openpyxl", "pypdf", "python-docx", "python-pptx", "trafilatura"}
KEPT = "model_prices_and_context_window_backup.json"
REQUIRED = re.compile(
    r"(?P<name>[\w.-]+)\s*(?:\[(?P<extras>[^\]]*)\])?(?P<rest>[^;]*;.*extra *== *[\"'](?P<of>[\w-]+))?"
)


def canonical(name: str) -> str:
    """Return the name of a package as an index spells it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def reached(requirements: Iterable[str], installed: dict[str, metadata.Distribution]) -> set[str]:
    """Return the installed packages that these requirements need, with the extras that they name, on any platform."""
    seen: set[tuple[str, str]] = set()
    todo = [(line, "") for line in requirements]
    while todo:
        line, wanted = todo.pop()
        found = REQUIRED.match(line)
        if found is None or canonical(found["of"] or "") not in ("", wanted):
            continue
        name = canonical(found["name"])
        for extra in {"", *map(canonical, re.findall(r"[\w.-]+", found["extras"] or ""))}:
            if name in installed and (name, extra) not in seen:
                seen.add((name, extra))
                todo += [(needed, extra) for needed in installed[name].requires or ()]
    return {name for name, _ in seen}


def main(venv: str, pyproject: str) -> int:
    """Remove the files, and print the names of the packages."""
    [site] = Path(venv).glob("lib/python*/site-packages")
    installed = {canonical(one.name): one for one in metadata.distributions(path=[str(site)])}
    lines = tomllib.loads(Path(pyproject).read_text(encoding="utf-8"))["project"]["dependencies"]
    kept = [line for line in lines if (found := REQUIRED.match(line)) and canonical(found["name"]) not in LEFT_OUT]
    dropped = reached(LEFT_OUT, installed) - reached(kept, installed)
    for name in sorted(dropped):
        for file in installed[name].files or ():
            if file.name != KEPT:
                (site / file).unlink(missing_ok=True)
    for folder in sorted((path for path in site.rglob("*") if path.is_dir()), reverse=True):
        if not any(folder.iterdir()):
            folder.rmdir()
    sys.stdout.write(f"without {', '.join(sorted(dropped))}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
