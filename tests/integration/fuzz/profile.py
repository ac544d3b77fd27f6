"""How many examples: few and always the same ones by default, as many and as random as asked for locally.

`BOXWRIGHT_FUZZ=2000 pytest tests/integration/fuzz --hypothesis-seed=7` looks at 2,000 of each operation.
"""

from __future__ import annotations

import os
from typing import Final

from hypothesis import HealthCheck, settings

ASKED: Final = int(os.environ.get("BOXWRIGHT_FUZZ", "0"))


def examples(count: int) -> settings:
    """Return settings for `count` examples, unless the environment asks for more."""
    return settings(
        max_examples=ASKED or count,
        derandomize=not ASKED,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
