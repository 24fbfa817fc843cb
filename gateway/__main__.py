"""`python -m gateway [channel ...]`: run these channels (default: web)."""

from __future__ import annotations

import sys
from functools import partial

from gateway.app import main
from shared import service

if __name__ == "__main__":
    sys.exit(service.run(partial(main, sys.argv[1:] or ["web"])))
