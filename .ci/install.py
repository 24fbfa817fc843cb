"""Install from a lock and say how far it is: `python -I -S .ci/install.py <lock> <pip command> ...`.

By itself pip prints a line for each package and link, or nothing for a minute, in which people press Ctrl-C. It also
compiles every file, one after the other: a third of the time, most of it for files that are rarely or never imported.
They are left out here; Python compiles one when it first imports it. Standard library only.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

LATER = r"/(litellm|openai|huggingface_hub|botocore|boto3|lark_oapi|grafana_foundation_sdk|mypy|pip|setuptools)/"
"""Folders of many files: libraries of which few files are imported, or none in most installations."""
EVERY = 20
LAST_LINES = 20


def main(lock: str, *pip: str) -> int:
    """Run pip, with a line at each stage; what it printed is shown when it fails."""
    total = sum("==" in line and line[0].isalnum() for line in Path(lock).read_text(encoding="utf-8").splitlines())
    command = [word for word in pip if word != "--quiet"] + ["--progress-bar", "off", "--no-compile", "-r", lock]
    lines: list[str] = []
    fetched = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if line.startswith(("Collecting ", "Processing ")):
                fetched += 1
                if fetched % EVERY == 0:
                    say(f"{fetched} of {total} packages fetched and checked against their hashes")
            elif line.startswith("Installing collected"):
                say("All are there; unpacking them")
    if process.returncode:
        sys.stderr.writelines(lines[-LAST_LINES:])
        return process.returncode
    say("Compiling what Shoal starts with")
    for packages in Path(command[0]).absolute().parents[1].glob("lib/python*/site-packages"):
        compiler = [command[0], "-I", "-m", "compileall", "-q", "-j", "0", "-x", LATER, str(packages)]
        # A file that cannot be compiled is one of another version of Python that nobody imports.
        subprocess.run(compiler, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    return 0


def say(line: str) -> None:
    """Print at once, also into a pipe."""
    sys.stdout.write(f"    {line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
