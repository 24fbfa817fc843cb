"""What README.md and docs say is so: tests, settings, tools, commands, skills, words to people."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, get_args

import msgspec
import pytest

from gateway.commands.registry import OWN
from shared.settings import Settings
from tools.site.__main__ import CONFIG, pages
from worker.agent.run import NO_ANSWER
from worker.agent.turn import TurnOutcome
from worker.attempt.attempt import APOLOGIES
from worker.llm.clients.faults import RETRYABLE
from worker.skills.catalogue import BUILT_IN, SkillCatalogue
from worker.tools.registry import TOOLS

ROOT = Path(__file__).parents[2]
AGENT = (ROOT / "docs" / "agent.md").read_text()
SKILLS = (ROOT / "docs" / "skills.md").read_text()
README = (ROOT / "README.md").read_text()
RULES: Final = ["rule", "setting", "tests"]
SECTIONS: Final = tuple(Settings.__struct_fields__)
UNSET: Final[tuple[object, ...]] = (None, "", [], {})


def tables(text: str) -> Iterator[tuple[list[str], list[list[str]]]]:
    """The head and the rows of each table."""
    for block in re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE):
        head, _, *rows = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in block.splitlines()]
        yield head, rows


def rows(head: Sequence[str]) -> list[list[str]]:
    """The rows of all tables in docs/agent.md with this head."""
    return [row for found, rows in tables(AGENT) if found == head for row in rows]


def spans(text: str) -> list[str]:
    """What stands in backticks."""
    return re.findall(r"`([^`\n]+)`", text)


@cache
def names_in(file: str) -> frozenset[str]:
    """The names of the tests in a file below tests/; none when there is no such file."""
    path = ROOT / "tests" / file
    if not path.is_file():
        return frozenset()
    tree = ast.parse(path.read_text())
    found = (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(node.name for node in found if node.name.startswith("test_"))


def wrong_tests(row: Sequence[str]) -> list[str]:
    """What is wrong with the last cell of a rule's row."""
    named = spans(row[-1])
    missing = [one for one in named if one.partition("::")[2] not in names_in(one.partition("::")[0])]
    return missing or ([] if named else ["no test"])


def default_of(key: str) -> Any:
    """The default of `section.key`. Raises KeyError when there is no such setting."""
    settings: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(Settings(), enc_hook=str))
    section, _, name = key.partition(".")
    return settings[section][name]


def wrong_settings(cell: str) -> list[str]:
    """The settings in a rule's row that do not exist, or whose default is another one."""
    wrong = []
    for span in spans(cell):
        key, _, result = span.partition(" = ")
        try:
            known, is_so = True, default_of(key) in UNSET
            if result:
                is_so = tomllib.loads(f"x = {result}")["x"] == default_of(key)
        except (KeyError, tomllib.TOMLDecodeError):
            known = is_so = False
        if not (known and is_so):
            wrong.append(span)
    return wrong


def test_every_rule_names_tests_that_exist() -> None:
    """A rule without a test is a wish."""
    found = rows(RULES)
    assert len(found) > 80
    assert {row[0]: wrong_tests(row) for row in found if len(row) != 3 or wrong_tests(row)} == {}


def test_every_rule_names_settings_that_exist_with_their_defaults() -> None:
    """What an operator reads is what holds without a file."""
    assert {row[0]: wrong_settings(row[1]) for row in rows(RULES) if wrong_settings(row[1])} == {}


def test_every_setting_of_the_agent_is_in_a_rule() -> None:
    """A number that nothing explains, and nothing proves."""
    result = {span.partition(" = ")[0] for row in rows(RULES) for span in spans(row[1])}
    agents = ("agent", "memory", "budget", "model", "plugins")
    known = {f"{name}.{key}" for name in agents for key in getattr(Settings(), name).__struct_fields__}
    assert known - result == set()


@pytest.mark.parametrize("text", [AGENT, SKILLS, README], ids=["agent.md", "skills.md", "README.md"])
def test_every_setting_in_the_prose_exists(text: str) -> None:
    """Also one that is named in passing."""
    keys = [span.partition(" = ")[0] for span in spans(text)]
    for key in keys:
        if re.fullmatch(rf"({'|'.join(SECTIONS)})\.[a-z_]+", key) and not key.endswith((".md", ".toml")):
            default_of(key)


def test_every_tool_and_command_is_named() -> None:
    """And no command that is not there is explained."""
    named = set(spans(AGENT))
    assert set(TOOLS) <= named, f"docs/agent.md, under Tools, says nothing of {sorted(set(TOOLS) - named)}"
    explained = {spans(row[0])[0].removeprefix("/") for row in rows(["command", ""])}
    assert explained == set(OWN)
    assert {f"/{name}" for name in OWN} <= set(spans(README))


def test_texts_for_people_are_listed_here_word_for_word() -> None:
    """Every apology, beside its kind; every kind of fault that may pass; every way a turn ends."""
    result: dict[str, str] = {}
    last = ""
    for _, kind, _, text in rows(["fault", "kind", "what happens", "what the person sees"]):
        last = last if text == "the same" else text
        result[kind] = f"{result.get(kind, '')}{last}"
    for kind, text in APOLOGIES.items():
        assert f'"{text}"' in result[f"`{kind}`"]
    for kind in RETRYABLE:
        assert f"`{kind}`" in result
    for outcome in {*get_args(TurnOutcome)} - {"done"}:
        assert f"outcome `{outcome}`" in result
    assert result["outcome `empty`"] == f'"{NO_ANSWER}"'


@pytest.mark.parametrize("path", ["README.md", "docs/agent.md", "docs/skills.md"])
def test_every_link_leads_to_a_file(path: str) -> None:
    """Nobody is sent nowhere."""
    file = ROOT / path
    links = re.findall(r"\]\((?!https?:)([^)#\s]+)", file.read_text())
    assert links
    assert [link for link in links if not (file.parent / link).exists()] == []


def test_every_page_is_in_the_nav_of_the_site() -> None:
    """Once: `make docs` fails otherwise. A new page belongs into `tools/site/mkdocs.yml`."""
    listed = re.findall(r"(?:: |- )(\S+\.md)$", CONFIG.read_text(), re.MULTILINE)
    assert sorted(listed) == pages()


def test_every_built_in_skill_is_named_with_an_example(tmp_path: Path) -> None:
    """The table has each of them, says whether it is always there, and has something to ask."""
    [built_in] = [rows for head, rows in tables(SKILLS) if head[0] == "skill"]
    result = {spans(name)[0]: always == "yes" for name, always, _ in built_in}
    assert result == {skill.name: skill.always for skill in SkillCatalogue(tmp_path, built_in=BUILT_IN).skills()}
    assert all('"' in example for _, _, example in built_in)


def test_the_example_skill_is_loaded(tmp_path: Path) -> None:
    """Copied as it stands, under the path that stands above it."""
    [(place, text)] = re.findall(
        r"^`agent/(skills/[^`]+)`\n\n```markdown\n(.*?)^```$", SKILLS, re.DOTALL | re.MULTILINE
    )
    path = tmp_path / place
    path.parent.mkdir(parents=True)
    path.write_text(text)
    [skill] = [one for one in SkillCatalogue(tmp_path).skills() if one.origin == "operator"]
    assert (skill.name, skill.always, skill.missing) == ("minutes", False, ())
    assert skill.description.startswith("Turn notes of a meeting into minutes")
    assert skill.text.startswith("# Minutes\n")
    assert set(spans(skill.text)) <= set(TOOLS), "it names only tools that there are"


@pytest.mark.parametrize(
    ("setting", "tests", "wrong"),
    [
        ("`agent.max_rounds = 40`", "`worker/agent/test_think.py::test_thoughts_are_cut_from_a_whole_text`", []),
        ("`agent.max_rounds = 41`", "", ["agent.max_rounds = 41", "no test"]),
        ("`agent.no_such = 1`", "`worker/agent/test_think.py::test_no_such`", None),
        ("`model.max_tokens`", "`worker/agent/test_none.py::test_x`", None),
    ],
)
def test_what_is_wrong_in_a_row_is_found(setting: str, tests: str, wrong: list[str] | None) -> None:
    """The checks above can fail."""
    expected = [*spans(setting), *spans(tests)] if wrong is None else wrong
    assert wrong_settings(setting) + wrong_tests(["", setting, tests]) == expected
