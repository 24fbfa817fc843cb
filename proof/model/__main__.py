"""`python -m proof.model [name ...]` explores every variant, or those named, and prints a table. With names also the
traces. Exit code 1 when something was found that is not expected, or not found that is."""

from __future__ import annotations

import sys

from proof.model.variants import KNOWN, MISTAKES, SOUND, run


def main(names: list[str]) -> int:
    """Explore and print; the exit code."""
    variants = {**SOUND, **KNOWN, **MISTAKES}
    unknown = [name for name in names if name not in variants]
    if unknown:
        print(f"there is no variant {unknown[0]!r}; there are: {', '.join(map(repr, variants))}")
        return 2
    print(f"{'variant':36} {'states':>8} {'transitions':>12} {'depth':>6} {'seconds':>8}  verdict")
    failed = False
    for name in names or variants:
        found = run(variants[name])
        unexpected = variants[name].unexpected(found)
        failed = failed or bool(unexpected)
        kind = "known: " if name in KNOWN else "seeded, found: " if name in MISTAKES else ""
        verdict = f"UNEXPECTED: {unexpected}" if unexpected else kind + found.verdict
        print(
            f"{name:36} {found.states:8,} {found.transitions:12,} {found.depth:6} {found.seconds:8.2f}  {verdict}",
            flush=True,
        )
        if names and found.problem:
            print(found.story())
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
