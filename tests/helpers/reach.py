"""What a package may say to Redis, read from the source: which names it reaches, which scripts those load, and what
all of them name.

Names, not modules: a gateway that imports a record from a file reaches nothing of the class beside it. A class counts
whole, so the answer is at most a little too much.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from shared.store import keys
from shared.store.client.scripts import load, script_names

ROOT: Final = Path(__file__).parents[2]
_SCRIPTS: Final = frozenset(script_names())
_PREFIXES: Final = {"PREFIX", "SEEN_PREFIX"}
_CALL = re.compile(r"""(?:redis\.p?call|guarded)\(\s*['"](\w+)['"]""")
_FUNCTION = re.compile(r"^(local function (\w+)\(.*?^end$)", re.MULTILINE | re.DOTALL)
_CONSTANTS = re.compile(r"^(local ([A-Z][A-Z_, ]*) = .*)$", re.MULTILINE)
_KEY = re.compile(r"""\bkey\(\s*['"](\w+)['"]|PREFIX \.\. ['"]([a-z:]+)['"]""")


class Reach(NamedTuple):
    """Commands in capitals, and keys in which `*` stands for an id."""

    commands: frozenset[str]
    keys: frozenset[str]
    scripts: frozenset[str]


Name = tuple[str, str]
"""A module and a name at its top; the module's other statements are the name `""`."""


@cache
def reach(*starts: str) -> Reach:
    """What the modules that are one of `starts`, or inside one, may say to Redis."""
    todo: list[Name] = [
        (module, name)
        for module in _modules()
        if any(module == start or module.startswith(f"{start}.") for start in starts)
        for name in _parts(module)
    ]
    seen: set[Name] = set()
    commands: set[str] = set()
    found: set[str] = set()
    scripts: set[str] = set()
    while todo:
        here = todo.pop()
        if here in seen:
            continue
        seen.add(here)
        module, name = here
        if module == keys.__name__:
            continue
        for node in _parts(module).get(name, ()):
            todo += _intended(module, node)
            for inner in ast.walk(node):
                match inner:
                    case ast.Constant(value=str(script)) if script in _SCRIPTS:
                        scripts.add(script)
                    case ast.Call(args=message):
                        commands |= _commands(message)
                    case ast.Tuple(elts=[first, *_]) | ast.List(elts=[first, *_]):
                        commands |= _commands([first])
                    case ast.Attribute(value=ast.Name(id="keys"), attr=attr):
                        found |= {_pattern(attr)} - {""}
    for script in scripts:
        used = _used(load(script).source)
        commands |= {word.upper() for word in _CALL.findall(used)}
        for name in load(script).keys:
            if (named := keys.BY_NAME.get(name)) is not None:
                found.add(f"{named}*" if isinstance(named, keys.Keys) else named)
        for noun, whole in _KEY.findall(used):
            found.add(keys.PREFIX + (f"{noun}:*" if noun else f"{whole}*" if whole.endswith(":") else whole))
    wide = {key.removesuffix("*") for key in found if key.endswith("*")}
    found = {key for key in found if not any(key.startswith(start) and key != f"{start}*" for start in wide)}
    return Reach(frozenset(commands), frozenset(found), frozenset(scripts))


def _used(source: str) -> str:
    """A script without the functions and constants before it that it does not use."""
    parts = {name: block for block, name in _FUNCTION.findall(source)}
    rest = _FUNCTION.sub("", source)
    for line, names in _CONSTANTS.findall(rest):
        parts |= dict.fromkeys(re.findall(r"\w+", names), line)
    text, seen = _CONSTANTS.sub("", rest), set[str]()
    while more := {name for name in parts.keys() - seen if re.search(rf"\b{name}\b", text)}:
        seen |= more
        text += "\n".join(parts[name] for name in more)
    return text


def _commands(message: list[ast.expr]) -> set[str]:
    """What looks like a command among the arguments of a call, or as the first of a row."""
    words = {word.value for word in message if isinstance(word, ast.Constant) and isinstance(word.value, str)}
    return {word for word in words if re.fullmatch(r"[A-Z]{3,}", word)}


def _pattern(attr: str) -> str:
    """The key that `keys.<attr>` makes; `""` for what is none by itself."""
    made = getattr(keys, attr, "")  # a local may have the name of the module, too
    if isinstance(made, type) or made is keys.family or not (callable(made) or isinstance(made, str)):
        return ""
    if isinstance(made, str) and not isinstance(made, keys.Keys):
        return made if made.startswith(keys.PREFIX) and attr not in _PREFIXES else ""
    text: str = made("*") if isinstance(made, keys.Keys) else made(*("*" for _ in range(made.__code__.co_argcount)))
    text = re.sub(r"\*[:*]*$", "*", text) if "*" in text else text
    return f"{text.rstrip('*')}*" if text.startswith(keys.PREFIX) else ""


def _intended(module: str, node: ast.AST) -> Iterator[Name]:
    """The names of ours that a statement uses."""
    imported, own = _imports(module), _parts(module)
    for inner in ast.walk(node):
        match inner:
            case ast.Name(id=name) if name in own:
                yield module, name
            case ast.Name(id=name) if name in imported:
                yield imported[name]
            case ast.Attribute(value=ast.Name(id=name), attr=attr) if name in imported and not imported[name][1]:
                yield imported[name][0], attr
            case ast.ImportFrom():
                yield from _imported(inner).values()
            case ast.Constant(value=str(dotted)) if re.fullmatch(r"(gateway|shared|worker)[\w.]+:\w+", dotted):
                there, _, what = dotted.partition(":")
                yield there, what


@cache
def _modules() -> dict[str, Path]:
    found = {}
    for package in ("console", "gateway", "shared", "shoal", "worker"):
        for path in (ROOT / package).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse(_modules()[module].read_text())


@cache
def _parts(module: str) -> dict[str, tuple[ast.stmt, ...]]:
    """Each name at the top of a module, with the statements that make it."""
    if module not in _modules():
        return {}
    found: dict[str, tuple[ast.stmt, ...]] = {}
    for statement in _tree(module).body:
        match statement:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names = [name]
            case ast.Assign(targets=targets):
                names = [target.id for target in targets if isinstance(target, ast.Name)]
            case ast.AnnAssign(target=ast.Name(id=name)):
                names = [name]
            case ast.Import() | ast.ImportFrom():
                continue
            case _:
                names = [""]
        for name in names:
            found[name] = (*found.get(name, ()), statement)
    return found


@cache
def _imports(module: str) -> dict[str, Name]:
    found: dict[str, Name] = {}
    for statement in ast.walk(_tree(module)):
        if isinstance(statement, ast.ImportFrom):
            found |= _imported(statement)
    return found


def _imported(statement: ast.ImportFrom) -> dict[str, Name]:
    """What a name stands for that was imported here: a module with `""`, or a name in one (followed once)."""
    found: dict[str, Name] = {}
    for alias in statement.names:
        whole = f"{statement.module}.{alias.name}"
        if whole in _modules():
            found[alias.asname or alias.name] = (whole, "")
        elif statement.module in _modules():
            there = (str(statement.module), alias.name)
            if alias.name not in _parts(there[0]):
                there = _imports(there[0]).get(alias.name, there) if there[0] != "" else there
            found[alias.asname or alias.name] = there
    return found
