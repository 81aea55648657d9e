"""The plain NumPy versions of the tests, as further opponents; they need what ``pip install '.[test]'`` installs."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from reference import bernstein, kl, kl_attack, learners

__all__ = ["bernstein", "kl", "kl_attack", "learners"]
