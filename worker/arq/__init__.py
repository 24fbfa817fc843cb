"""arq, imported here first, without PyJWT and cryptography. redis-py wants them for one class, for
tokens of Entra ID, which Shoal does not use; they are more than half of what importing arq
costs."""

from __future__ import annotations

import sys
from types import ModuleType

_stub = ModuleType("jwt")
_jwt = sys.modules.setdefault("jwt", _stub)
import arq.worker  # noqa: E402, F401

if _jwt is _stub:
    # Whoever needs the real one imports it later.
    del sys.modules["jwt"]
