"""Draws monitor.png, the evidence of a monitor before and after demand rises: ``python docs/images/monitor.py``."""

import sys
from pathlib import Path

import entropic_bpi as eb
from entropic_bpi import plots

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks.monitoring import CHANGES, Shop, certificate

claim = certificate(1000)
monitor = eb.Monitor(claim)
policy = eb.Policy.load(claim, unseen=0)
for shop, episodes in ((Shop(), 200), (Shop(**CHANGES["demand: 50 % more customers"]), 100)):
    eb.rollout(monitor.watch(shop), policy, episodes=episodes, seed=0)
plots.save(monitor.plot(), Path(__file__).with_name("monitor.png"))
