"""`python -m gateway [channel ...]`: run these channels, without any the web chat and every
platform that is on; with `--check` check their settings instead."""

from __future__ import annotations

import sys
from functools import partial

from gateway.app import check, main
from shared.confinement.own_process import hide_process
from shared.process import service

if __name__ == "__main__":
    hide_process()
    names = [name for name in sys.argv[1:] if name != "--check"]
    sys.exit(service.run(partial(check if "--check" in sys.argv[1:] else main, names)))
