"""Heads of SKILL.md as people write them: almost YAML."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.helpers.scripted_model import call
from tests.helpers.text_files import TextFiles
from worker.agent.tools.tool import ToolContext
from worker.agent.tools.toolbox import Toolbox
from worker.prompts.system import skill_list
from worker.skills.catalogue import SkillCatalogue
from worker.skills.front_matter import Head, parse_skill
from worker.tools.registry import build_tools

DESCRIPTIONS: Final = {
    "a colon": "Configure the harness: Hooks, MCP Servers, Skills",
    "two colons": "Use when: the user says: go",
    "a bracket": "[Beta] Writes minutes",
    "a list": "[minutes, notes]",
    "a map": "{minutes} of a meeting",
    "a template": "{{ name }} of a meeting",
    "an at": "@team asks for minutes",
    "a star": "*important* minutes",
    "a name of YAML": "*minutes",
    "a percent": "% of something",
    "an ampersand": "&more minutes",
    "an exclamation": "!important minutes",
    "an exclamation alone": "! minutes",
    "a greater": "> minutes and notes",
    "a pipe": "| minutes and notes",
    "a backtick": "`minutes` are written",
    "a hash": "# minutes",
    "a hash within": "Fix issue #12 with C # and F#",
    "a hyphen": "- minutes",
    "a question": "? minutes",
    "a quote within": 'Say "minutes": then write',
    "a quote at the beginning": '"Minutes" of a meeting',
    "a quote without its end": '"Minutes of a meeting',
    "an apostrophe without its end": "'tis the season",
    "an apostrophe": "the team's minutes: don't forget",
    "a backslash": r"C:\notes\minutes: \d+",
    "a number": "007",
    "a number with a point": "1.10",
    "a boolean": "yes",
    "a date": "2026-99-99",
    "a time": "12:30",
    "a glob": "**/*.md: all of Markdown",
    "a link": "https://example.org/a?b=c: see there",
    "Chinese": "会议：记录",
    "an emoji": "🎉: minutes",
    "a comma": "minutes, notes: tasks",
    "a colon at the end": "minutes:",
    "a tag": "!!python/object:os.system x",
}


@pytest.mark.parametrize("what", DESCRIPTIONS)
def test_a_description_is_read_as_it_is_written(what: str) -> None:
    """Whatever YAML would make of its characters."""
    text = DESCRIPTIONS[what]
    assert parse_skill(f"---\nname: x\ndescription: {text}\n---\nBody") == (Head(text), "Body")


FORMS: Final = {
    "quotes": ('description: "Minutes: of \\"all\\""', 'Minutes: of "all"'),
    "single quotes": ("description: 'the team''s: minutes'", "the team's: minutes"),
    "quotes that YAML refuses": ('description: "C:\\data: \\d+"\nother: [', "C:\\data: \\d+"),
    "a block": ("description: |\n  Two: words\n  # lines\n", "Two: words # lines"),
    "a folded block": ("description: >-\n  Two: words\n\n  lines\nother: a: b", "Two: words lines"),
    "a block by tabs": ("description: |\n\tTwo: words\n\tlines\nother: a: b", "Two: words lines"),
    "lines that go on": ("description: Two: words\n  and lines", "Two: words and lines"),
    "lines that go on at the edge": ("description: Two: words\nand lines", "Two: words and lines"),
    "no blank": ("description:Minutes", "Minutes"),
    "a tab behind the colon": ("description:\tMinutes: all", "Minutes: all"),
    "a key in quotes": ('"description": Minutes', "Minutes"),
    "all in braces": ("{name: x, description: Minutes}", "Minutes"),
    "nothing": ("description: ''", ""),
}


@pytest.mark.parametrize("what", FORMS)
def test_a_description_is_read_in_every_form(what: str) -> None:
    """Quotes and signs of blocks are not part of it."""
    written, text = FORMS[what]
    assert parse_skill(f"---\n{written}\n---\nBody") == (Head(text), "Body")


OTHERS: Final = (
    "globs: *.ts, **/*.md",
    "globs: [*.ts, !x]",
    "version: 1.0: beta",
    "tags: [a, b",
    "tags:\n\t- a\n\t- b: c: d",
    "author: @someone",
    "license: `MIT`",
    "when: 2026-99-99",
    'quoted: "never closed',
    "percent: %d",
    "emoji: {",
    "a: &a [x]\nb: [*a, *a]",
    "metadata: not: yaml",
    "metadata: [a, b]",
    "metadata: 5",
    "metadata: '{'",
    "metadata: {clawdbot: {requires: 5}}",
    "hooks:\n  PreToolUse:\n    - matcher: *\n      run: x",
    "allowed-tools: Bash(git:*), Read(**)",
    "deep: " + "[" * 50 + "]" * 50,
    "? complex\n: key",
    "no field at all",
    "name: y\nname: z",
)


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("order", ["before", "behind"])
def test_a_field_that_is_not_used_spoils_nothing(other: str, order: str) -> None:
    """It is for other programs."""
    ours = "description: Minutes: all of them"
    head = f"{other}\n{ours}" if order == "before" else f"{ours}\n{other}"
    if other == "no field at all" and order == "behind":
        assert parse_skill(f"---\n{head}\n---\nBody")[0].description.startswith("Minutes: all of them")
    else:
        assert parse_skill(f"---\n{head}\n---\nBody") == (Head("Minutes: all of them"), "Body")


def test_what_a_skill_needs_is_read_beside_what_is_not_yaml() -> None:
    """A colon in the description loses no requirement."""
    needs = "metadata:\n\tnanobot:\n\t\talways: true\n\t\trequires:\n\t\t\tbins: [ffmpeg]"
    assert parse_skill(f"---\ndescription: a: b\n{needs}\n---\n")[0] == Head("a: b", True, ("ffmpeg",))
    assert parse_skill("---\ndescription: a: b\nalways: yes\n---\n")[0] == Head("a: b", True)


FRAMES: Final = {
    "lines of Windows": ("---\r\ndescription: a: b\r\n---\r\nBody\r\n", "Body"),
    "lines of old Macs": ("---\rdescription: a: b\r---\rBody", "Body"),
    "a mark": ("\ufeff---\ndescription: a: b\n---\nBody", "Body"),
    "blank lines before": ("\n\n---\ndescription: a: b\n---\nBody", "Body"),
    "blanks behind the dashes": ("---  \ndescription: a: b\n---\t\nBody", "Body"),
    "more dashes": ("---\ndescription: a: b\n-----\nBody", "Body"),
    "dots": ("---\ndescription: a: b\n...\nBody", "Body"),
    "no closing line": ("---\nname: x\ndescription: a: b\n\n# Title\nBody: all", "# Title\nBody: all"),
    "no closing line nor blank": ("---\nname: x\ndescription: a: b\n# Title\nBody", "# Title\nBody"),
    "nothing below": ("---\ndescription: a: b\n---", ""),
}


@pytest.mark.parametrize("what", FRAMES)
def test_a_head_is_found(what: str) -> None:
    """By any program's line ends, and without its last line."""
    text, body = FRAMES[what]
    assert parse_skill(text) == (Head("a: b"), body)


def test_a_colon_in_the_description() -> None:
    """As a skill for another program has it."""
    text = Path("tests/data/reports/s-colon.md").read_text()
    assert parse_skill(text) == (Head("Configure the harness: Hooks, MCP Servers, Skills"), "Body")


BAD: Final = "---\ndescription: x\nalways: maybe\n---\n"
WHY: Final = "its head does not fit: Expected 'bool', got 'str' - at '$.always'"
WRITTEN: Final = {
    "skills/x/SKILL.md": (BAD, f"This skill is not used: {WHY}."),
    "./skills/x/SKILL.md": ("---\nname: x\n", "This skill is not used: its head has no end; write a line of"),
    "skills/my skill/SKILL.md": ("# A", "the name of its folder may have letters, digits"),
    "skills/x/skill.md": ("# A", "its name is 'skill.md'; a skill is a file 'skills/<name>/SKILL.md'"),
    "skills/x.md": ("# A", "it is in no folder of its own"),
    "skills/y/SKILL.md": ("# A", "The skill has no description"),
}


@pytest.mark.parametrize("path", WRITTEN)
async def test_the_writer_of_a_skill_learns_why_it_is_skipped(path: str) -> None:
    """In the result of the tool, at once; of a change too."""
    text, says = WRITTEN[path]
    box = Toolbox(build_tools(["write_file", "edit_file"]))
    context = ToolContext(session="s", turn=1, call_id="c", files=TextFiles({}))
    wrote = await box.call(call("write_file", {"path": path, "content": text}), context)
    assert says in wrote.content
    change = {"path": path, "old_text": text, "new_text": text + "\n"}
    assert says in (await box.call(call("edit_file", change), context)).content


@pytest.mark.parametrize("path", ["skills/x/SKILL.md", "skills/x/notes.md", "skills/x/a/SKILL.md", "notes.md"])
async def test_a_good_skill_and_other_files_get_no_note(path: str) -> None:
    """The result is as short as before."""
    box = Toolbox(build_tools(["write_file"]))
    context = ToolContext(session="s", turn=1, call_id="c", files=TextFiles({}))
    content = "---\ndescription: Minutes: all\n---\nDo it."
    assert (await box.call(call("write_file", {"path": path, "content": content}), context)).content.endswith("lines.")


def test_a_broken_skill_of_a_workspace_is_listed_with_its_reason(tmp_path: Path) -> None:
    """A command may have written it: then no tool said so."""
    folder = tmp_path / "workspace" / "skills" / "x"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(BAD)
    [skill] = SkillCatalogue(tmp_path / "agent").workspace_skills(tmp_path / "workspace")
    listed = skill_list([skill])
    assert 'available="false"' in listed
    assert f"<description>skipped: {WHY}</description>" in listed


BEFORE: Final = {
    "test_a_description_is_read_as_it_is_written": 1,
    "test_a_description_is_read_in_every_form": 6,
    "test_a_field_that_is_not_used_spoils_nothing": 0,
    "test_what_a_skill_needs_is_read_beside_what_is_not_yaml": 0,
    "test_a_head_is_found": 0,
    "test_a_colon_in_the_description": 0,
    "test_the_writer_of_a_skill_learns_why_it_is_skipped": 0,
    "test_a_good_skill_and_other_files_get_no_note": 4,
    "test_a_broken_skill_of_a_workspace_is_listed_with_its_reason": 0,
}
