"""Learners that minimise regret and certify nothing: the published baselines.

Each learner follows its paper and is tested run by run against a second, plain implementation of the same formulas. None
was compared with the code of its authors. ``run`` plays a learner and computes its exact regret, ``names`` lists the
learners, ``title`` returns the name in papers, and ``register`` adds your own. The docstring of each module has the
algorithms, the bonuses, the guarantees and the references.

The published bonuses differ by orders of magnitude. With ``scale=1``, RSVI, RSQ and UCB-Advantage stay clipped for any
practical number of episodes and play at random among ties. Compare at ``scale=1`` and at a common smaller scale.
"""

from __future__ import annotations

from entropic_bpi.lab.learners._run import Run, names, register, run, title

__all__ = ["Run", "names", "register", "run", "title"]
