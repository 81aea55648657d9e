"""Statistics over seeds. The number of capped runs is part of each summary."""

from __future__ import annotations

from typing import Any

import numpy as np

LEVEL = 0.95


def confidence(samples: Any, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
    """Compute the mean over the first axis and half the width of Student's t interval for it.

    Parameters
    ----------
    samples : array-like
        The samples; the first axis counts them.
    level : float
        Probability that the interval contains the mean.

    Returns
    -------
    mean, half_width : float array
        The half-width is NaN if there is one sample.

    Examples
    --------
    >>> mean, half = confidence([1.0, 2.0, 3.0])
    >>> float(mean), round(float(half), 4)
    (2.0, 2.4841)
    """
    from scipy.stats import t

    values = np.asarray(samples, dtype=float)
    n, mean = len(values), values.mean(axis=0)
    if n < 2:
        return mean, np.full_like(mean, np.nan)
    return mean, t.ppf((1 + level) / 2, n - 1) * values.std(axis=0, ddof=1) / np.sqrt(n)


def summary(values: Any, capped: Any = None) -> dict[str, Any]:
    """Compute the number of seeds, the mean with Student's t interval, the median and the number of capped runs.

    A capped run counts with the number of episodes at which it was stopped. So with ``capped`` above 0 the mean is only a
    lower bound; the median is exact as long as fewer than half of the runs are capped.

    Examples
    --------
    >>> summary([1.0, 2.0, 3.0])["mean"], summary([1.0, 2.0, 9.0], capped=[False, False, True])["median"]
    (2.0, 2.0)
    """
    values = np.asarray(values, dtype=float)
    mean, half = confidence(values, LEVEL)
    return {
        "seeds": len(values),
        "capped": 0 if capped is None else int(np.sum(capped)),
        "mean": float(mean),
        "mean_low": float(mean - half),
        "mean_high": float(mean + half),
        "median": float(np.median(values)),
    }


def line(x: Any, y: Any) -> tuple[float, float]:
    """Compute the slope of the least-squares line and the share of variance that it explains.

    Examples
    --------
    >>> slope, share = line([0, 1, 2], [1, 3, 5])
    >>> round(slope, 6), round(share, 6)
    (2.0, 1.0)
    """
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    slope, offset = np.polyfit(x, y, 1)
    spread = np.sum((y - y.mean()) ** 2)
    return float(slope), float(1 - np.sum((y - offset - slope * x) ** 2) / spread) if spread > 0 else 1.0


def proportion(failures: int, runs: int) -> tuple[float, float, float]:
    """Compute the observed proportion and its exact binomial interval, that of Clopper and Pearson.

    Examples
    --------
    >>> rate, low, high = proportion(0, 100)
    >>> rate, low, round(high, 4)
    (0.0, 0.0, 0.0362)
    """
    from scipy.stats import binomtest

    if runs == 0:
        return 0.0, 0.0, 1.0
    interval = binomtest(failures, runs).proportion_ci(LEVEL, method="exact")
    return failures / runs, float(interval.low), float(interval.high)
