"""The fixtures that the suites of all three languages read."""

import json
import pathlib
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[3]


def fixture(name: str) -> Any:
    """Read a fixture of the repository."""
    return json.loads((ROOT / "tests" / "fixtures" / name).read_text(encoding="utf-8"))
