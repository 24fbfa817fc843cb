"""What is in an image, as CycloneDX 1.6: `python -I .ci/sbom.py <virtual environment> <version of Shoal>`.

It lists what is installed and not what a lock allows, so each variant and platform of the image has its own, and it
has no date and no random number: the same environment gives the same bytes. The packages of the base's distribution
are not in it. Standard library only.
"""

from __future__ import annotations

import json
import re
import sys
from importlib import metadata
from pathlib import Path
from typing import Any


def purl(name: str, version: str) -> str:
    """Return a package of PyPI as a package URL."""
    return f"pkg:pypi/{re.sub(r'[-_.]+', '-', name).lower()}@{version}"


def component(found: metadata.Distribution) -> dict[str, Any]:
    """Return one package, with the licence that it names by an expression of SPDX, or in its own words."""
    about = found.metadata
    reference = purl(found.name, found.version)
    part: dict[str, Any] = {
        "type": "library",
        "bom-ref": reference,
        "name": found.name,
        "version": found.version,
        "purl": reference,
    }
    if expression := about.get("License-Expression"):
        part["licenses"] = [{"expression": expression}]
    elif words := [line.rpartition(" :: ")[2] for line in about.get_all("Classifier") or () if "License ::" in line]:
        part["licenses"] = [{"license": {"name": one}} for one in sorted(words)]
    elif (words_of_old := about.get("License", "").strip()) and "\n" not in words_of_old:
        part["licenses"] = [{"license": {"name": words_of_old}}]
    return part


def main(venv: str, version: str) -> int:
    """Print the list."""
    [site] = Path(venv).glob("lib/python*/site-packages")
    installed = sorted(metadata.distributions(path=[str(site)]), key=lambda one: one.name.lower())
    ours = {"type": "application", "bom-ref": f"shoal@{version}", "name": "shoal", "version": version}
    bom = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": ours | {"licenses": [{"expression": "MIT"}]}},
        "components": [component(one) for one in installed],
    }
    json.dump(bom, sys.stdout, indent=1, sort_keys=True)
    sys.stdout.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
