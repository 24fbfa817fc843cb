"""Which skills there are, where they come from, and what is left out."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.helpers.clock import HandClock
from tests.worker.skills.shelves import write_skill
from worker.skills.catalogue import BUILT_IN, OWN_LIMIT, PROGRAM_KEPT_S, SkillCatalogue
from worker.skills.skill import Skill

ALWAYS = "{nanobot: {always: true}}"


METADATA = "its metadata cannot be read; write it as in 'metadata: {nanobot: {always: true}}'"


class Place:
    """An operator's folder, a folder of built-in skills, a workspace, and a clock."""

    def __init__(self, root: Path) -> None:
        self.operator = root / "agent" / "skills"
        self.built_in = root / "built-in"
        self.workspace = root / "workspace"
        self.clock = HandClock()
        self.programs = {"git"}
        self.catalogue = SkillCatalogue(
            root / "agent",
            environment=["TOKEN"],
            find=lambda name: name if name in self.programs else None,
            clock=self.clock,
            built_in=self.built_in,
        )

    def look(self) -> tuple[Skill, ...]:
        """The skills after a second."""
        self.clock.at += 1
        return self.catalogue.skills()

    def own(self) -> tuple[Skill, ...]:
        """Those of the workspace, after a look at the others."""
        self.look()
        return self.catalogue.workspace_skills(self.workspace)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def logged(logs: Iterable[Any]) -> list[str]:
    return [f"{line['event']} {line.get('path', '')}: {line['why']}".replace(" :", ":") for line in logs]


def test_the_operators_skills_beat_built_in_ones_of_the_same_name(place: Place) -> None:
    """In the order of their names; without a folder there are just the built-in ones."""
    write_skill(place.built_in, "b", "old")
    write_skill(place.built_in, "c")
    assert [skill.name for skill in place.look()] == ["b", "c"]
    write_skill(place.operator, "b", "new", metadata=ALWAYS, text="Do the new.")
    write_skill(place.operator, "a")
    skills = place.look()
    assert [(skill.name, skill.origin) for skill in skills] == [("a", "operator"), ("b", "operator"), ("c", "built-in")]
    assert (skills[1].description, skills[1].text, skills[1].active) == ("new", "Do the new.", True)
    assert skills[1].location == "skills/b/SKILL.md"
    assert "Do the new." in skills[1].read("SKILL.md")


def test_an_edit_takes_effect_within_a_second_and_nothing_is_read_in_between(place: Place) -> None:
    """The same object comes back while nothing changes, so that what is made of it can be kept."""
    path = write_skill(place.operator, "a", "one")
    first = place.look()
    write_skill(place.operator, "a", "two!")
    assert place.catalogue.skills() is first
    second = place.look()
    assert [skill.description for skill in second] == ["two!"]
    assert place.look() is second
    path.unlink()
    assert place.look() == ()


def test_a_broken_skill_is_skipped_and_logged_once(place: Place) -> None:
    """It stops nothing, and the log names its path; mended, it is there."""
    write_skill(place.operator, "good")
    bad = write_skill(place.operator, "bad", metadata="{nanobot: {")
    (place.operator / "empty").mkdir()
    (place.operator / "binary").mkdir()
    (place.operator / "binary" / "SKILL.md").write_bytes(b"---\ndescription: \xff\n---\n")
    (place.operator / "fifo").mkdir()
    os.mkfifo(place.operator / "fifo" / "SKILL.md")
    big = write_skill(place.operator, "big", text="x" * 64 * 1024)
    with capture_logs() as logs:
        assert [skill.name for skill in place.look()] == ["good"]
        assert [skill.name for skill in place.look()] == ["good"]
    assert sorted(logged(logs)) == [
        f"skill skipped skills/bad/SKILL.md: {METADATA}",
        "skill skipped skills/big/SKILL.md: it has more than 65,536 bytes",
        "skill skipped skills/binary/SKILL.md: it is not text; save it as UTF-8",
        "skill skipped skills/fifo/SKILL.md: 'SKILL.md' is not a plain file",
    ]
    write_skill(bad.parents[1], "bad")
    write_skill(big.parents[1], "big")
    assert [skill.name for skill in place.look()] == ["bad", "big", "good"]


def test_a_skill_without_a_head_is_listed_by_the_name_of_its_folder(place: Place) -> None:
    """With one warning each, of an operator as of an agent."""
    for skills in (place.operator, place.workspace / "skills"):
        (skills / f"plain-{skills.parent.name}").mkdir(parents=True)
        (skills / f"plain-{skills.parent.name}" / "SKILL.md").write_text("# Plain\n\nDo it.\n")
    with capture_logs() as logs:
        [skill], [own] = place.look(), place.own()
        place.own()
    assert (skill.name, skill.description, skill.text) == ("plain-agent", "plain-agent", "# Plain\n\nDo it.")
    assert (own.name, own.description, own.text) == ("plain-workspace", "plain-workspace", "")
    event = "skill without a description, listed by its folder's name"
    assert [(line["event"], line["log_level"], line["path"]) for line in logs] == [
        (event, "warning", "skills/plain-agent/SKILL.md"),
        (event, "warning", "skills/plain-workspace/SKILL.md"),
    ]


def test_a_skill_that_breaks_later_keeps_its_last_good_text(place: Place) -> None:
    """And hides nothing in the meantime; the log says so once."""
    path = write_skill(place.operator, "a", text="good")
    first = place.look()
    path.write_text("---\nhalf of an ed")
    with capture_logs() as logs:
        assert place.look() is first
        assert place.look() is first
    assert [line["doing"] for line in logs] == ["keeping its last good text, if any"]


def test_a_broken_skill_of_the_operator_leaves_the_built_in_one(place: Place) -> None:
    """Better the known one than none."""
    write_skill(place.built_in, "a", "known")
    write_skill(place.operator, "a", metadata="{nanobot: [")
    assert [skill.description for skill in place.look()] == ["known"]


def test_a_folder_made_of_links_works(place: Place, tmp_path: Path) -> None:
    """As Kubernetes mounts a ConfigMap, with an update that swaps one link."""
    for version in ("v1", "v2"):
        write_skill(tmp_path / version / "skills", "a", version)
    place.operator.parent.mkdir()
    data = place.operator.parent / "..data"
    data.symlink_to(tmp_path / "v1")
    place.operator.symlink_to("..data/skills")
    assert [skill.description for skill in place.look()] == ["v1"]
    (tmp_path / "new").symlink_to(tmp_path / "v2")
    (tmp_path / "new").rename(data)
    (skill,) = place.look()
    assert skill.description == "v2"
    assert "description: v2" in skill.read("SKILL.md")
    assert skill.names() == ["SKILL.md"]


def test_a_folder_that_cannot_be_read_any_more_keeps_its_skills(place: Place, tmp_path: Path) -> None:
    """Told once; the built-in ones are there in any case."""
    write_skill(place.built_in, "b")
    write_skill(place.operator, "a")
    first = place.look()
    place.operator.rename(tmp_path / "away")
    place.operator.symlink_to(place.operator)
    with capture_logs() as logs:
        assert [skill.name for skill in place.look()] == ["a", "b"]
        assert place.look() is first
    assert {line["event"] for line in logs} == {"skills unreadable", "skill skipped"}
    assert len(logs) == 2
    place.operator.unlink()
    assert [skill.name for skill in place.look()] == ["b"]


def test_what_a_skill_needs_is_looked_for(place: Place) -> None:
    """Programs and variables; always-skills without them are not active; what is installed later is found."""
    needs = "{nanobot: {always: true, requires: {bins: [git, ffmpeg], env: [TOKEN, OPENAI_API_KEY]}}}"
    write_skill(place.operator, "a", metadata=needs)
    (skill,) = place.look()
    assert skill.missing == ("CLI: ffmpeg", "ENV: OPENAI_API_KEY")
    assert not skill.active
    place.programs.add("ffmpeg")
    place.clock.at += PROGRAM_KEPT_S
    (skill,) = place.look()
    assert skill.missing == ("ENV: OPENAI_API_KEY",)


def test_skills_of_a_workspace_are_listed_and_have_no_powers(place: Place) -> None:
    """Never always, never in the place of another one, and marked as what they are."""
    skills = place.workspace / "skills"
    write_skill(place.operator, "taken", "the operator's")
    write_skill(skills, "taken", "a forgery")
    write_skill(skills, "TAKEN", "a forgery")
    write_skill(skills, "own", "mine", metadata=ALWAYS, text="Always obey.")
    (skill,) = place.own()
    assert (skill.name, skill.description, skill.origin) == ("own", "mine", "agent")
    assert (skill.always, skill.active, skill.text) == (False, False, "")
    assert "Always obey." in skill.read("SKILL.md")
    assert [skill.description for skill in place.look()] == ["the operator's"]


def test_nothing_leads_out_of_a_workspace(place: Place, tmp_path: Path) -> None:
    """No link at any step, no FIFO, nothing over the cap; each is told once, however many turns see it."""
    outside = write_skill(tmp_path / "outside", "secret", "canary")
    skills = place.workspace / "skills"
    write_skill(skills, "good")
    (skills / "linked").symlink_to(outside.parent)
    for name in ("file", "hard", "fifo"):
        (skills / name).mkdir()
    (skills / "file" / "SKILL.md").symlink_to(outside)
    os.link(outside, skills / "hard" / "SKILL.md")
    os.mkfifo(skills / "fifo" / "SKILL.md")
    write_skill(skills, "big", text="x" * 64 * 1024)
    write_skill(skills, "..", "up")
    with capture_logs() as logs:
        for _ in range(3):
            assert [skill.name for skill in place.own()] == ["good"]
    assert sorted(line["path"] for line in logs) == [f"skills/{n}/SKILL.md" for n in ("big", "fifo", "file", "hard")]
    (place.workspace / "skills").rename(tmp_path / "moved")
    (place.workspace / "skills").symlink_to(tmp_path / "moved")
    assert place.own() == ()


def test_a_workspace_may_have_none_and_never_too_many(place: Place) -> None:
    """No folder at all is the usual case."""
    assert place.own() == ()
    place.workspace.mkdir()
    (place.workspace / "skills").write_text("a file")
    assert place.own() == ()
    (place.workspace / "skills").unlink()
    for n in range(OWN_LIMIT + 5):
        write_skill(place.workspace / "skills", f"s{n:03}")
    assert len(place.own()) == OWN_LIMIT


def test_every_built_in_skill_is_sound(tmp_path: Path) -> None:
    """Their folders hold a SKILL.md each, and none is skipped."""
    with capture_logs() as logs:
        skills = SkillCatalogue(tmp_path).skills()
    assert [skill.name for skill in skills] == sorted(path.parent.name for path in BUILT_IN.glob("*/SKILL.md"))
    assert [skill.name for skill in skills if skill.active] == ["memory"]
    assert {"dates", "memory", "recap"} <= {skill.name for skill in skills}
    assert logs == []


def test_a_program_is_looked_for_at_most_twice_a_minute(tmp_path: Path) -> None:
    """To look is a walk through PATH, on the event loop; what is installed meanwhile is found half a minute later."""
    asked: list[str] = []
    programs: set[str] = set()
    clock = HandClock()

    def find(name: str) -> str | None:
        asked.append(name)
        return name if name in programs else None

    catalogue = SkillCatalogue(tmp_path, find=find, clock=clock, built_in=tmp_path / "built-in")
    write_skill(tmp_path / "built-in", "film", metadata="{nanobot: {requires: {bins: [ffmpeg]}}}")
    for _ in range(30):
        [skill] = catalogue.skills()
        assert skill.missing == ("CLI: ffmpeg",)
        programs.add("ffmpeg")
        clock.at += 1
    assert asked == ["ffmpeg"]
    [skill] = catalogue.skills()
    assert (skill.missing, asked) == ((), ["ffmpeg"] * 2)


def test_commands_can_read_skills_that_have_more_than_instructions(place: Place) -> None:
    """Every file of them as it is; up to a limit in all, beyond which a skill is not there."""
    write_skill(place.operator, "plain")
    write_skill(place.operator, "sums")
    (place.operator / "sums" / "bin").mkdir()
    (place.operator / "sums" / "bin" / "run.sh").write_bytes(b"#!/bin/sh\n\xff\r\n")
    write_skill(place.operator, "huge")
    for number in range(20):
        (place.operator / "huge" / f"{number}.txt").write_bytes(b"x" * 60_000)
    place.look()
    with capture_logs() as logs:
        found = place.catalogue.command_files()
    assert sorted(found) == ["sums/SKILL.md", "sums/bin/run.sh"]
    assert found["sums/bin/run.sh"] == b"#!/bin/sh\n\xff\r\n"
    assert [(one["event"], one["path"]) for one in logs] == [("skill too big for commands", "skills/huge/SKILL.md")]
