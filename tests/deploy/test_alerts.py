"""Recording and alert rules: each alert fires when it must and only then, and has its page in the runbook."""

from __future__ import annotations

import json
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
import yaml  # type: ignore[import-untyped]

from console.main import cli
from tests.deploy.alert_cases import CASES, Case, Series
from tests.helpers.need import need

ROOT: Final = Path(__file__).parents[2]
PROMETHEUS: Final = ROOT / "deploy" / "prometheus"
RULES: Final = sorted((PROMETHEUS / "rules").glob("*.yaml"))
RUNBOOK: Final = ROOT / "deploy" / "RUNBOOK.md"
PARTS: Final = ("People notice", "Look", "Do", "Worry")
SEVERITIES: Final = {"critical", "warning", "info"}


@cache
def rules() -> list[dict[str, Any]]:
    """Every rule of every group."""
    files = [yaml.load(path.read_text(), Loader=yaml.CSafeLoader) for path in RULES]
    return [rule for file in files for group in file["groups"] for rule in group["rules"]]


def alerts() -> dict[str, dict[str, Any]]:
    """The alerts by name."""
    return {rule["alert"]: rule for rule in rules() if "alert" in rule}


def promtool(*arguments: str | Path, message: str = "") -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    need("promtool", install="Debian: apt-get install prometheus")
    return subprocess.run(
        ["promtool", *map(str, arguments)], input=message, capture_output=True, text=True, check=False
    )


def sections() -> dict[str, str]:
    """What stands under each heading of the runbook's part about alerts."""
    part = RUNBOOK.read_text().partition("\n## Alerts\n")[2].partition("\n## ")[0]
    found = re.findall(r"^### (\S+)\n(.*?)(?=^### |\Z)", part, re.MULTILINE | re.DOTALL)
    return dict(found)


def test_promtool_accepts_rules_and_configuration() -> None:
    """As the server reads them."""
    checked = promtool("check", "rules", *RULES)
    assert checked.returncode == 0, checked.stderr
    config = promtool("check", "config", PROMETHEUS / "prometheus.yaml")
    assert config.returncode == 0, config.stdout + config.stderr


def tried(case: Case, series: Series, *, fires: bool) -> dict[str, Any]:
    """What promtool is to do, and to find."""
    rule = alerts()[case.alert]
    labels = {"severity": rule["labels"]["severity"], **case.labels}
    annotations = {"summary": case.says, "runbook_url": rule["annotations"]["runbook_url"]}
    return {
        "name": f"{case.alert} {'fires' if fires else 'is silent'}",
        "interval": case.step,
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": [
            {
                "eval_time": f"{case.minutes}m",
                "alertname": case.alert,
                "exp_alerts": [{"exp_labels": labels, "exp_annotations": annotations}] if fires else [],
            }
        ],
    }


def written(file: Path, rules: list[Path], tests: list[dict[str, Any]], *, every: str) -> Path:
    """A file for `promtool test rules`: these tests of these rules."""
    content = {"rule_files": [str(path) for path in rules], "evaluation_interval": every, "tests": tests}
    file.write_text(json.dumps(content))
    return file


def needed(alert: str) -> set[str]:
    """The names of an alert and of every rule that records what it reads."""
    recorded = {rule["record"]: rule["expr"] for rule in rules() if "record" in rule}
    found, looked_at = {alert}, [alerts()[alert]["expr"]]
    while looked_at:
        read = set(re.findall(r"[\w:]+", looked_at.pop())) & recorded.keys() - found
        found |= read
        looked_at += [recorded[name] for name in read]
    return found


def with_only(names: set[str], folder: Path) -> list[Path]:
    """Our files with these rules alone, in their groups: promtool evaluates every rule of a file for every test."""
    folder.mkdir()
    made = []
    for path in RULES:
        groups = [
            {**group, "rules": [rule for rule in group["rules"] if names & {rule.get("alert"), rule.get("record")}]}
            for group in yaml.load(path.read_text(), Loader=yaml.CSafeLoader)["groups"]
        ]
        made.append(folder / path.name)
        made[-1].write_text(json.dumps({"groups": [group for group in groups if group["rules"]]}))
    return made


@pytest.mark.parametrize("step", sorted({case.step for case in CASES}))
@pytest.mark.parametrize("fires", [True, False], ids=["fires", "is silent"])
def test_each_alert_fires_when_it_must_and_only_then(step: str, fires: bool, tmp_path: Path) -> None:
    """By promtool, with the words that people read."""
    cases = [case for case in CASES if case.step == step]
    files = []
    for alert in {case.alert: None for case in cases}:
        tests = [tried(case, case.fires if fires else case.quiet, fires=fires) for case in cases if case.alert == alert]
        few = with_only(needed(alert), tmp_path / alert)
        files.append(written(tmp_path / f"{alert}.yaml", few, tests, every=step))
    result = promtool("test", "rules", *files)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("SUCCESS") == len(files)


def test_promtool_finds_what_is_wrong(tmp_path: Path) -> None:
    """The check above can fail: an alert that fires unasked, one that does not, one that says something else."""
    case = next(case for case in CASES if case.alert == "ShoalNoWorkers")
    for test in (
        tried(case, case.fires, fires=False),
        tried(case, case.quiet, fires=True),
        tried(case._replace(says="Nothing."), case.fires, fires=True),
    ):
        file = written(tmp_path / "test.yaml", RULES, [test], every="1m")
        assert "FAILED" in promtool("test", "rules", file).stderr


def test_every_alert_is_tried() -> None:
    """An alert that nobody has seen firing is a hope."""
    assert {case.alert for case in CASES} == set(alerts())


def test_every_alert_says_how_bad_it_is_and_links_its_heading() -> None:
    """Both ways: a heading without an alert is a page that nobody is sent to."""
    for name, rule in alerts().items():
        assert rule["labels"]["severity"] in SEVERITIES
        assert rule["annotations"]["runbook_url"] == f"deploy/RUNBOOK.md#{name.lower()}"
    assert list(sections()) == list(alerts())


@pytest.mark.parametrize("name", sorted(alerts()))
def test_every_page_says_what_people_notice_where_to_look_and_what_to_do(name: str) -> None:
    """And when to worry; with a command, a dashboard or another alert to look at."""
    text = sections()[name]
    parts = re.findall(r"^\*\*(.+?)\.\*\* \S", text, re.MULTILINE)
    assert parts == list(PARTS)
    assert re.search(r"`shoal [a-z]|[Dd]ashboard|\]\(#shoal", text)


def test_every_command_of_the_runbook_exists() -> None:
    """With its subcommand and its options."""
    found = re.findall(r"`shoal ([^`]+)`", RUNBOOK.read_text())
    assert len(found) > 10
    for words in (one.split() for one in found):
        command: Any = cli
        for word in words:
            if word.startswith("-"):
                names = {name for parameter in command.params for name in parameter.opts}
                assert word.partition("=")[0] in names, f"shoal {' '.join(words)}: {word}"
            elif hasattr(command, "get_command"):
                command = command.get_command(None, word)
                assert command is not None, f"shoal {' '.join(words)}: {word}"


def test_links_inside_the_runbook_lead_somewhere() -> None:
    """To a heading, or to a file."""
    text = RUNBOOK.read_text()
    headings = {
        re.sub(r"[^a-z0-9 -]", "", h.lower()).replace(" ", "-") for h in re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    }
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, heading = target.partition("#")
        assert heading in headings if not path else (RUNBOOK.parent / path).exists(), target
