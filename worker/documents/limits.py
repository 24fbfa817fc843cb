"""What reading one document may take; parent and child agree on these."""

from __future__ import annotations

from typing import Final

FILE_LIMIT_BYTES: Final = 16 * 1024 * 1024
TEXT_LIMIT_CHARS: Final = 1_000_000
MEMORY_BYTES: Final = 768 * 1024 * 1024
CPU_S: Final = 10
WALL_S: Final = 30
REFUSED: Final = 3
"""How the child ends when it does not read a file; the last line of what it wrote is the reason."""
