"""Importing this module registers two instances with Gymnasium, as in
``gymnasium.make("entropic_bpi.environments:entropic_bpi/RiskyBridge-v0")``.
"""

import gymnasium

_HOME = "entropic_bpi.model.gymnasium.env"

gymnasium.register("entropic_bpi/RiskyBridge-v0", f"{_HOME}:make_risky_bridge")
gymnasium.register("entropic_bpi/RiverSwim-v0", f"{_HOME}:make_river_swim")
