"""The head of a SKILL.md, good and bad."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worker.skills.front_matter import HEAD_LIMIT_BYTES, BadSkill, Head, parse_skill


def head(text: str) -> Head:
    return parse_skill(f"---\n{text}\n---\nbody")[0]


def test_head_and_body_are_separated() -> None:
    """The body is what stands in the prompt: without the head, with its own lines of dashes."""
    text = "---\nname: x\ndescription: >\n  Two\n  lines.\n---  \n\n# Do\n\n---\n\nthis\n"
    assert parse_skill(text) == (Head("Two lines."), "# Do\n\n---\n\nthis")
    assert parse_skill("\ufeff---\ndescription: x\n---") == (Head("x"), "")


@pytest.mark.parametrize(
    "metadata",
    [
        "{nanobot: {always: true, requires: {bins: [ffmpeg], env: [API_KEY]}}}",
        '\'{"nanobot": {"emoji": "x", "always": true, "requires": {"bins": ["ffmpeg"], "env": ["API_KEY"]}}}\'',
        "\n  nanobot:\n    always: yes\n    requires:\n      bins:\n        - ffmpeg\n      env: [API_KEY]",
    ],
)
def test_metadata_is_yaml_or_json_in_text(metadata: str) -> None:
    """As skills of the wider world have it; unknown keys are left alone."""
    assert head(f"description: x\nlicense: MIT\nmetadata: {metadata}") == Head("x", True, ("ffmpeg",), ("API_KEY",))


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("description: x\nalways: true", Head("x", True)),
        ("description: x\nalways: yes\nmetadata: {nanobot: {always: false}}", Head("x", True)),
        ("description: x\nalways: false\nmetadata: {nanobot: {always: true}}", Head("x", True)),
        ("description: x\nalways: false", Head("x")),
    ],
)
def test_always_counts_at_the_top_of_the_head_too(text: str, parsed: Head) -> None:
    """Either place is enough."""
    assert head(text) == parsed


@pytest.mark.parametrize(
    ("text", "body"),
    [
        ("# Title\n\n---\nDo it.\n", "# Title\n\n---\nDo it."),
        ("\ufeffDo it.", "Do it."),
        ("---\n---\nDo it.", "Do it."),
        ("---\nname: x\n---\nDo it.", "Do it."),
        ("---\ndescription:\n---\nDo it.", "Do it."),
        ("---\ndescription: '  '\n---\nDo it.", "Do it."),
    ],
)
def test_a_skill_without_a_head_or_a_description_is_one(text: str, body: str) -> None:
    """It goes by the name of its folder, which the caller knows."""
    assert parse_skill(text) == (Head(""), body)


@pytest.mark.parametrize("metadata", ["", "null", "{}", "{nanobot: null}", "{other: 1}", "{nanobot: {requires: null}}"])
def test_metadata_may_say_nothing(metadata: str) -> None:
    """Then the skill needs nothing and is read on demand."""
    assert head(f"description: x\nmetadata: {metadata}") == Head("x")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"),
        ("\ufeff \n", "is empty"),
        ("---\nname: x\n", "no end"),
        ("---\nhalf of an ed", "no end"),
        ("---\ndescription: x\nalways: maybe\n---\n", "does not fit.*always"),
        ("---\njust words\n---\n", "no fields"),
        ("---\ndescription: x\nmetadata: {nanobot: {always: maybe}}\n---\n", "does not fit.*always"),
        ("---\ndescription: x\nmetadata: {nanobot: {requires: {bins: ffmpeg}}}\n---\n", "does not fit.*bins"),
        ("---\ndescription: x\nmetadata: {nanobot: {requires: {bins: [/bin/sh]}}}\n---\n", "does not fit.*bins"),
        ("---\ndescription: x\nmetadata: {nanobot: {requires: {env: ['A=B']}}}\n---\n", "does not fit.*env"),
        ("---\ndescription: x\nmetadata: {nanobot: {requires: {bins: [a]}\n---\n", "metadata cannot be read"),
        ("---\ndescription: x\nmetadata: '{\"nanobot\": '\n---\n", "metadata cannot be read"),
        ("---\ndescription: " + "x" * HEAD_LIMIT_BYTES + "\n---\n", "more than 8,192 bytes"),
    ],
)
def test_what_is_wrong_is_named_without_quoting_it(text: str, says: str) -> None:
    """The text goes to the log."""
    with pytest.raises(BadSkill, match=says) as raised:
        parse_skill(text)
    assert "ffmpeg" not in str(raised.value)


def test_references_that_would_fill_the_memory_are_not_followed() -> None:
    """Neither nested references nor merges of them; the description is read at once."""
    lists = "\n".join(["a0: &a0 [x]"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)])
    merges = "\n".join(
        ["b0: &b0 {x: y}"] + [f"b{n}: &b{n}\n  <<: [{', '.join([f'*b{n - 1}'] * 9)}]" for n in range(1, 12)]
    )
    started = time.process_time()
    for bomb in (lists, merges):
        assert head(f"description: x\n{bomb}") == Head("x")
    assert time.process_time() - started < 1


@settings(deadline=None)
@given(st.text(max_size=300))
def test_any_text_is_a_head_or_a_reason(text: str) -> None:
    """No other error gets out."""
    try:
        parsed = head(text)
    except BadSkill:
        return
    assert parsed.description == " ".join(parsed.description.split())
