"""Renders the chart with Helm, by the Python of `make tools`: reads a list of values as JSON, writes for each what Helm
makes of it, or its error. With a third argument the chart is linted and packed there first, and that file rendered."""

from __future__ import annotations

import json
import sys

import helm_python as helm  # type: ignore[import-not-found]


def main(folder: str, namespace: str, packed: str | None = None) -> None:
    """Render each of the values; the chart is loaded once."""
    results = []
    if packed is not None:
        assert helm.lint(folder, strict=True)["errors"] == []
        folder = helm.package(folder, destination=packed)
    with helm.Chart.load(folder) as chart:
        for values in json.load(sys.stdin):
            try:
                rendered = chart.render(values, name="shoal", namespace=namespace)
                results.append({"text": "\n---\n".join(rendered.values())})
            except helm.HelmError as error:
                results.append({"error": str(error)})
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
