"""Importing this module registers two instances with Gymnasium, as in
``gymnasium.make("entropic_bpi.environments:entropic_bpi/RiskyBridge-v0")``.
"""

import gymnasium

_MAKE = "entropic_bpi.model.gymnasium.env:make"

gymnasium.register("entropic_bpi/RiskyBridge-v0", _MAKE, kwargs={"instance": "risky-bridge"})
gymnasium.register("entropic_bpi/RiverSwim-v0", _MAKE, kwargs={"instance": "river-swim"})
