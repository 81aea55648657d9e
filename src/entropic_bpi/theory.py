"""Lower and upper bounds on the number of episodes that identification takes."""

from entropic_bpi.lab.limits.bounds import condition_a, lower_bound, small_eps_limit, upper_bound
from entropic_bpi.lab.limits.characteristic import CharacteristicTime, characteristic_time

__all__ = ["CharacteristicTime", "characteristic_time", "condition_a", "lower_bound", "small_eps_limit", "upper_bound"]
