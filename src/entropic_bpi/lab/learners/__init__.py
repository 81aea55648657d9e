"""Learners that minimise regret and certify nothing: the published baselines.

Each is written after its paper and tested run by run against a second, plain version of the same formulas; none was
compared with code of its authors. ``run`` plays one of them and keeps its exact regret; ``names`` lists them, ``title``
says how papers write them, ``register`` adds your own. Each family has a module whose docstring gives the algorithm, the
bonus, the guarantee and the reference. ``run_until`` gives those that can carry one a stopping rule, and
``pac_from_regret`` says what a regret bound is worth for identification.

The sizes of the published bonuses differ by orders of magnitude, and so does what they can learn in practice: with
``scale=1``, RSVI, RSQ and UCB-Advantage stay clipped for any practical number of episodes and play at random among
ties. Compare at ``scale=1`` and at a common smaller scale.
"""

from __future__ import annotations

from entropic_bpi.lab.learners._run import Run, names, register, run, title
from entropic_bpi.lab.learners.stopping import Conversion, Stop, pac_from_regret, run_until

__all__ = ["Conversion", "Run", "Stop", "names", "pac_from_regret", "register", "run", "run_until", "title"]
