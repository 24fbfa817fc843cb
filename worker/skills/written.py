"""What an agent is told of a SKILL.md that it has just written."""

from __future__ import annotations

from shared.errors import ToolFailed
from worker.guards.paths import split_path
from worker.skills.below import FILE_LIMIT_BYTES
from worker.skills.catalogue import OWN
from worker.skills.front_matter import BadSkill, parse_skill
from worker.skills.skill_folder import SKILL, path_fault


def skill_note(path: str, text: str) -> str:
    """Return a sentence for the result of a file tool that wrote `text`: why the skill will be skipped,
    or that it has no description; empty for a good skill and for any other file."""
    try:
        first, *inside = split_path(path)
    except (ToolFailed, ValueError):
        return ""
    if first != OWN or not inside:
        return ""
    fault = path_fault(inside)
    if fault is None and list(inside[1:]) == [SKILL]:
        fault = _fault_of(text)
        if fault == "":
            return " The skill has no description: it is listed by the name of its folder."
    return f" This skill is not used: {fault}." if fault else ""


def _fault_of(text: str) -> str | None:
    """Return what is wrong with a skill, `""` for a missing description, None for nothing."""
    if len(text.encode("utf-8", "replace")) > FILE_LIMIT_BYTES:
        return f"it has more than {FILE_LIMIT_BYTES:,} bytes; move a part into other files of its folder"
    try:
        head, _ = parse_skill(text)
    except BadSkill as exc:
        return str(exc)
    return None if head.description else ""
