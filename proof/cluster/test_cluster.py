"""What is installed for the bad day, and its parts that need no cluster."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest

from proof.cluster import day_two, installation, pages, primary
from proof.cluster.faults import FAULTS, has_failed
from proof.cluster.installation import GROUPS, Installation
from proof.cluster.load import ClusterPerson
from proof.cluster.pages import shell_blocks
from tests.helpers import manifests
from tests.helpers.manifests import containers, named, of_kind


@pytest.mark.parametrize("chart", [False, True])
@pytest.mark.parametrize("sentinels", [False, True])
def test_what_is_installed_is_the_overlay_in_a_namespace_of_its_own(chart: bool, sentinels: bool) -> None:
    """Nothing names the namespace of a real installation; the images are those that were given; two of each; and a
    volume for every claim."""
    at = Installation("own/shoal:1", "own/valkey:2", chart=chart, sentinels=sentinels)
    objects = at._objects()
    assert '"namespace": "shoal"' not in json.dumps(objects)
    assert {one["metadata"]["namespace"] for one in objects} == {at.kubectl.namespace}
    images = {one["image"] for _, pod in manifests.pods(objects) for one in containers(pod)}
    assert images == {"own/shoal:1", "own/valkey:2"}
    assert {named(objects, "Deployment", name)["spec"]["replicas"] for name in GROUPS} == {2}
    claims = {one["metadata"]["name"] for one in of_kind(objects, "PersistentVolumeClaim")}
    for one in of_kind(objects, "StatefulSet"):
        claims |= {f"data-{one['metadata']['name']}-{n}" for n in range(one["spec"]["replicas"])}
    assert claims <= at.disk.claims.keys()
    at.kubectl.words = at.disk.helper.words = ["true"]
    at.remove()


def test_the_first_wait_for_accepted_counts() -> None:
    """A message that is sent again after a cut is accepted twice, and was waited for once."""
    person = ClusterPerson("p", list, random.Random(1), ["old", "new"])
    person.sent_at["1-2-3"] = 0.0
    for _ in range(2):
        person._hear({"type": "accepted", "id": "1-2-3", "turn": 1})
    assert len(person.accept_waits) == 1


def test_a_pod_that_cannot_start_is_seen() -> None:
    """Not one that is only slow, and not one that once was restarted and works."""
    ended = {"ready": False, "restartCount": 0, "state": {"terminated": {"exitCode": 2}}}
    again = {"ready": False, "restartCount": 1, "state": {"waiting": {}}}
    slow = {"ready": False, "restartCount": 0, "state": {"running": {}}}
    works = {"ready": True, "restartCount": 1, "state": {"running": {}}}
    found = [has_failed({"status": {"containerStatuses": [one]}}) for one in (ended, again, slow, works)]
    assert found == [True, True, False, False]
    assert not has_failed({"status": {}})


def test_every_fault_says_what_it_does() -> None:
    """The table of docs/kubernetes.md has what they do in its own words."""
    assert all(fault.__doc__ for fault in (*FAULTS.values(), *primary.FAULTS.values()))


def test_every_block_of_the_pages_is_run_or_left_out_by_name() -> None:
    """Those of day two, those of docs/kubernetes.md, and those of docs/operations.md that need a cluster."""
    source = Path(day_two.__file__).read_text() + Path(installation.__file__).read_text()
    run = {
        (getattr(pages, page), part.encode().decode("unicode_escape"))
        for page, part in re.findall(r'pages\.run\((\w+), "([^"]+)"', source)
    }
    for page in (pages.DAY_TWO, pages.KUBERNETES, pages.OPERATIONS):
        blocks = shell_blocks(page)
        if page == pages.OPERATIONS:
            blocks = [block for block in blocks if block.startswith("# needs a cluster")]
        parts = [part for of, part in run if of == page]
        for part in parts:
            assert sum(part in block for block in shell_blocks(page)) == 1, part
        left = [block for block in blocks if not any(part in block for part in (*parts, *day_two.ASIDE))]
        assert left == [], page
