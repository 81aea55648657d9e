r"""Lower and upper bounds on the number of episodes, as functions of the sizes alone.

Notation: :math:`b=|\beta|`, :math:`q=e^{b\varepsilon}`, :math:`G` the largest return (:math:`G_{\max}`),

.. math:: V_G = \frac{(e^{bG}-1)^2}{e^{bG}}, \qquad L = \log\frac{3SAH}{\delta}, \qquad \log 8e = 1 + \log 8.

Three kinds of statement appear, and every docstring says which one a form is:

- *machine-checked*: proved in Lean 4, for rewards in [0, 1] that do not depend on the next state, one known start, and
  :math:`\beta\ne0`;
- *proved on paper*: a corrected version of the paper's proof;
- *printed*: the statement of the paper, which its proof does not establish.

Everything is computed in logarithms, with :math:`(e^{bx}-1)/b` in place of :math:`e^{bx}-1`, so that nothing overflows and
:math:`\beta=0` gives the limit if there is one. A result beyond the range of doubles is ``inf``; ``log=True`` returns
its natural logarithm instead.
"""

import math

from numpy import logaddexp

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.model.instances.hard import hard_shape
from entropic_bpi.tools import checks

_LOG_8E = 1.0 + math.log(8.0)
_LARGEST_DELTA = 1 / 16
# A condition that holds with equality must not fail by rounding.
_ROUNDING = 1e-12


def check_exponent(beta: float, reach: float) -> None:
    """Raise an error if the product of ``beta`` and ``reach``, the largest value, could overflow."""
    if not abs(beta) * reach <= 1e300:
        raise InvalidProblemError(f"|beta| times {reach:g} must be at most 1e+300, got beta = {beta:g}")


# -- the lower bound -----------------------------------------------------------------------------------------


def condition_a(n_states: int, n_actions: int, horizon: int, *, beta: float, eps: float) -> bool:
    r"""Return whether :math:`\varepsilon` is small enough for the hard instances to exist (condition A).

    With :math:`c=e^{bH'}-1`, where :math:`H'` is the largest return of
    :func:`~entropic_bpi.model.instances.hard_instance`, and :math:`q=e^{b\varepsilon}`, it is
    :math:`q-1\le c(2c+1)/(4(3c+2))` for :math:`\beta>0` and :math:`q-1\le c/(10c+8)` for :math:`\beta<0`, the hypothesis
    of the machine-checked theorem.

    Parameters
    ----------
    n_states, n_actions, horizon : int
        At least 6 states, 2 actions and 3d steps, d the depth of the tree.
    beta : float
        Risk parameter: positive is risk-seeking, negative risk-averse; 0 gives the common limit of both signs.
    eps : float
        Accuracy.

    Returns
    -------
    bool
        Whether the condition holds.

    Examples
    --------
    >>> from entropic_bpi import theory
    >>> theory.condition_a(10, 2, 12, beta=-1.0, eps=0.09)
    True
    >>> theory.condition_a(10, 2, 12, beta=-1.0, eps=0.1)
    False
    """
    beta, eps = checks.check_finite("beta", beta), checks.check_positive("eps", eps)
    paid_steps = hard_shape(n_states, n_actions, horizon).paid_steps
    check_exponent(beta, max(horizon + 1, eps))
    return _log_excess(abs(beta), eps) <= _log_condition(beta, paid_steps)


def lower_bound(
    n_states: int,
    n_actions: int,
    horizon: int,
    *,
    beta: float,
    eps: float,
    delta: float,
    max_return: float | None = None,
    form: str = "verified",
    log: bool = False,
) -> float:
    r"""Compute a lower bound on the episodes that every (ε, δ)-PAC algorithm needs, on average, on the hard instance.

    For every algorithm that returns an ε-optimal deterministic policy with probability at least :math:`1-\delta` on all
    models with the instance's rewards, :math:`\mathbb E[\tau]` on :math:`M_0` is at least

    - ``"verified"`` (machine-checked):
      :math:`\frac{1}{5000}\,V_G\,e^{2\min(\beta,0)\varepsilon}\,\frac{SAH}{(q-1)^2}\log\frac1\delta`;
    - ``"exact"`` (proved on paper, the last step of the same proof before its constants are rounded):
      :math:`|U|\,\mathrm{kl}(1/|U|,\,1-\delta)\,/\,\mathrm{kl}(p_-,p_+)`, with :math:`|U|` the number of choices
      (step, leaf, action) and :math:`p_\pm` the success probabilities of
      :func:`~entropic_bpi.model.instances.hard_instance`; it holds for every :math:`\delta`, and is 0 when
      :math:`\delta\ge1-1/|U|`;
    - ``"printed"`` (the paper's theorem, proved on paper under a corrected condition A, which is
      :math:`q\le\min\{\frac{4c^2+14c+8}{2c^2+13c+8},\frac{16}{13}\}` for :math:`\beta>0`):
      ``verified`` with 1/1650 in place of 1/5000.

    Hypotheses: :math:`S\ge6`, :math:`A\ge2`, :math:`H\ge3d`, :math:`\delta\le1/16` (not for ``exact``) and
    :func:`condition_a`. Deviations from the printed theorem: the sum over tree levels
    starts at 0; the waiting state is left at step :math:`\bar H` at the latest; :math:`\bar H` is an integer,
    :math:`\lfloor H/3\rfloor` in the machine-checked instances and :math:`\lceil H/3\rceil` for ``printed``, so that
    :math:`G` there is :math:`H-\lceil H/3\rceil-d`; and condition A, because under the printed one the proof fails.

    The bound is about these instances and no other models; for a given model see
    :func:`characteristic_time`. ``printed``, and ``exact`` for :math:`\beta<0`, hold for randomised policies too.

    Parameters
    ----------
    n_states, n_actions, horizon : int
        Sizes of the instance.
    beta : float
        Risk parameter: positive is risk-seeking, negative risk-averse. 0 gives the limit,
        :math:`\frac{1}{5000}\frac{G^2SAH}{\varepsilon^2}\log\frac1\delta` for ``verified``.
    eps, delta : float
        Accuracy, and the probability of error.
    max_return : float, optional
        The largest return of the instance, between 0 and :math:`H'`, the default. A smaller one means that the good state
        pays ``max_return`` / :math:`H'` a step; the construction depends on the product alone, so the proof is the same,
        but only the default is machine-checked.
    form : {"verified", "exact", "printed"}
        Which bound; see above.
    log : bool
        Return the natural logarithm of the bound.

    Returns
    -------
    float
        The bound, or its logarithm.

    Examples
    --------
    >>> from entropic_bpi import theory
    >>> sizes = dict(n_states=10, n_actions=2, horizon=12, eps=0.05, delta=0.05)
    >>> for form in ("verified", "exact", "printed"):
    ...     print(form, round(theory.lower_bound(**sizes, beta=-1.0, form=form)))
    verified 7247
    exact 538723
    printed 21961

    The limit β → 0, and a bound that exceeds the range of floats:

    >>> round(theory.lower_bound(**sizes, beta=0.0), 3)
    1437.951
    >>> round(theory.lower_bound(**sizes, beta=1000.0, log=True), 3)
    4898.061
    """
    eps = checks.check_positive("eps", eps)
    return _result(_log_lower((n_states, n_actions, horizon), beta, eps, delta, max_return, form), log)


def small_eps_limit(
    n_states: int,
    n_actions: int,
    horizon: int,
    *,
    beta: float,
    delta: float,
    max_return: float | None = None,
    form: str = "verified",
    log: bool = False,
) -> float:
    r"""Return the limit of :math:`\varepsilon^2` times :func:`lower_bound` as :math:`\varepsilon\to0`.

    It is :math:`\frac{1}{5000}\frac{V_G}{\beta^2}\,SAH\log\frac1\delta` for ``verified``, the same with 1/1650 for
    ``printed``, and :math:`|U|\,\mathrm{kl}(1/|U|,1-\delta)\,\frac{(2-x)(1-x)^2}{2\beta^2x(3-x)^2}` with
    :math:`x=e^{-bG}` for ``exact``. At :math:`\beta=0`, :math:`V_G/\beta^2` is :math:`G^2` and the last fraction
    :math:`G^2/8`: the order :math:`\Omega(G^2SAH\log(1/\delta)/\varepsilon^2)` of the risk-neutral problem.

    Parameters
    ----------
    n_states, n_actions, horizon : int
        Sizes of the instance.
    beta : float
        Risk parameter: positive is risk-seeking, negative risk-averse.
    delta : float
        Probability of error.
    max_return : float, optional
        As for :func:`lower_bound`.
    form : {"verified", "exact", "printed"}
        As for :func:`lower_bound`.
    log : bool
        Return the natural logarithm.

    Returns
    -------
    float
        The limit, or its logarithm.

    Examples
    --------
    >>> from entropic_bpi import theory
    >>> round(theory.small_eps_limit(10, 2, 12, beta=0.0, delta=0.05), 4)  # 5**2 * 10 * 2 * 12 * log(20) / 5000
    3.5949
    """
    return _result(_log_lower((n_states, n_actions, horizon), beta, None, delta, max_return, form), log)


def _log_lower(
    sizes: tuple[int, int, int], beta: float, eps: float | None, delta: float, max_return: float | None, form: str
) -> float:
    """Compute the logarithm of :func:`lower_bound` or, without ``eps``, of its limit."""
    checks.check_choice("form", form, ("verified", "exact", "printed"))
    beta, delta = checks.check_finite("beta", beta), checks.check_probability("delta", delta)
    shape, (n_states, n_actions, horizon) = hard_shape(*sizes), sizes
    exits = -(-horizon // 3) if form == "printed" else shape.exits
    check_exponent(beta, horizon if eps is None else max(horizon + 1, eps))
    why = "the number of steps in which the hard instance of these sizes can pay"
    largest, b = _check_return(max_return, horizon - exits - shape.depth, why), abs(beta)
    if eps is not None and _log_excess(b, eps) > (limit := _log_condition(beta, largest, form == "printed")):
        raise InvalidProblemError(
            f"eps={eps:g} is outside condition A: with beta={beta:g} and largest return {largest:g} "
            f"it must be at most {_eps_of_log_excess(b, limit):.6g}"
        )
    rate = _log_spread(b, largest)
    if form == "exact":
        x = math.exp(-b * largest)
        rate += math.log((2 - x) / (2 * (3 - x) ** 2))
        choices = exits * (n_states - shape.first_leaf) * n_actions
        return _log_tests(choices, delta) + (rate if eps is None else -_log_divergence(beta, largest, eps))
    if eps is not None:
        if delta > _LARGEST_DELTA:
            raise InvalidProblemError(
                f"delta must be at most 1/16 for form={form!r}, got {delta:g}; form='exact' has no limit"
            )
        rate += 2 * min(beta, 0.0) * eps - 2 * _log_excess(b, eps)
    constant = 5000.0 if form == "verified" else 1650.0
    return rate + sum(map(math.log, sizes)) + math.log(-math.log(delta)) - math.log(constant)


def _check_return(max_return: float | None, most: int, why: str) -> float:
    largest = float(most) if max_return is None else checks.check_positive("max_return", max_return)
    if largest > most:
        raise InvalidProblemError(f"max_return must be at most {most}, {why}; got {largest:g}")
    return largest


def _log_condition(beta: float, largest: float, corrected: bool = False) -> float:
    """Compute the log of the largest (q - 1)/b under condition A, or under that of the printed bound (``corrected``)."""
    b = abs(beta)
    x, log_c = math.exp(-b * largest), _log_excess(b, largest)  # log(c/b)
    if beta < 0 or (b == 0 and corrected):  # at b = 0 both signs have the limit G/8
        bound = log_c - b * largest - math.log(10 - 2 * x)
    elif not corrected:
        bound = log_c + math.log((2 - x) / (4 * (3 - x)))
    else:  # c(2c+1)/(2c²+13c+8)
        bound = min(log_c - b * largest + math.log((2 - x) / (2 + 3 * x * (3 - x))), math.log(3 / 13) - math.log(b))
    return bound + _ROUNDING


def _log_tests(choices: int, delta: float) -> float:
    """Compute log(|U| kl(1/|U|, 1 - δ)); -inf if 1/|U| ≥ 1 - δ."""
    share = 1 / choices
    if share >= 1 - delta:
        return -math.inf
    divergence = share * (math.log(share) - math.log1p(-delta)) + (1 - share) * (math.log1p(-share) - math.log(delta))
    return math.log(choices) + math.log(divergence)


def _log_divergence(beta: float, largest: float, eps: float) -> float:
    r"""Compute log kl(p₋, p₊) as the log of :math:`p f(\Delta/p) + (1-p) f(-\Delta/(1-p))`, :math:`f(t)=t-\log(1+t)\ge0`.

    For β < 0 it is the failure probability x/2 that the special choice lowers, for β > 0 the success probability x/2 that
    it raises.
    """
    b = abs(beta)
    x = math.exp(-b * largest)
    log_p = -b * largest - math.log(2)
    log_rise = math.log(2 * (3 - x)) + _log_excess(b, eps) - _log_excess(b, largest) + b * largest  # log(Δ/p)
    sign = 1.0
    if beta < 0:
        sign, log_rise = -1.0, log_rise - logaddexp(0.0, math.log(2) + math.log(b) + _log_excess(b, eps))
    log_rest = math.log1p(-x / 2)
    own = log_p + _log_lag(log_rise, sign)
    other = log_rest + _log_lag(log_p + log_rise - log_rest, -sign)
    return logaddexp(own, other)


# -- the upper bound -----------------------------------------------------------------------------------------


def upper_bound(
    n_states: int,
    n_actions: int,
    horizon: int,
    *,
    beta: float,
    eps: float,
    delta: float,
    max_return: float,
    form: str = "verified",
    log: bool = False,
) -> float:
    r"""Compute a number of episodes within which the paper's algorithm stops on every model.

    - ``"verified"`` (machine-checked, for ``method="bernstein", constants="verified", replan="every"``):
      :math:`\tau\le C^2(L+1)C_1^2+(D+2\sqrt D\,C)(L+S)C_1^2+1`, where :math:`\kappa=(q-1)q^{-2}/2`,
      :math:`C=10^9\sqrt{V_G\,SAH}/\kappa`, :math:`D=10^{10}e^{b(H+1)}H^2SA/\kappa`,
      :math:`C_1=\frac85\log(11(8e)^2(L+S)(C+D)^2)`. The machine-checked statement also supposes
      :math:`\varepsilon\le2/(bHS)`, which its proof does not use; it is not required here. As :math:`\beta\to0` the
      bound grows like :math:`1/b`, because its ranges do not vanish with β: there is no limit.
    - ``"implicit"`` (proved on paper, for ``constants="sharp", replan="every"``): the largest root of

      .. math:: (1-q^{-1})\,\tau = \kappa\Big\{8\sqrt{2X\tau\cdot16SAH\,(L+\log 8e\tau)\log(\tau+1)}
         + 53HT_2\cdot16SAH\,(L+S\log 8e\tau)\log(\tau+1)\Big\}, \tag{K}

      :math:`X=V_G/4`, :math:`\kappa=(1+5/H+2/H^2)^{H-1}`, :math:`T_2=e^{bH}-1` for :math:`\beta>0` and
      :math:`e^{bG}(1-e^{-bH})` for :math:`\beta<0`. The right side grows more slowly than the left, so iterating it from
      above decreases to the root. :math:`\beta=0` gives the limit.
    - ``"printed"`` (the paper's theorem; its proof drops terms and constants, so this number is not a proved bound):
      :math:`\frac{e^{2\max(0,\beta)\varepsilon}}{(q-1)^2}V_G\,SAH\,L\,C_2^2` with
      :math:`C_2=2765e^{22}\log\big(4e^{17}(S+1)(H+1)e^{bH}SAH^2/(q-1)\big)`, for :math:`\varepsilon\le2/(bHS)`. The paper
      prints :math:`e^{\beta\varepsilon}-1` inside the logarithm, negative for :math:`\beta<0`; it is read as :math:`q-1`.

    Parameters
    ----------
    n_states, n_actions, horizon : int
        A random start counts as one more step.
    beta : float
        Risk parameter: positive is risk-seeking, negative risk-averse. 0 only with ``implicit``.
    eps, delta : float
        Accuracy, for rewards in [0, 1], and the probability of error.
    max_return : float
        :math:`G_{\max}`, the largest return of the model (:func:`~entropic_bpi.max_return`), at most the horizon.
    form : {"verified", "implicit", "printed"}
        Which bound; see above.
    log : bool
        Return the natural logarithm of the bound.

    Returns
    -------
    float
        The bound, or its logarithm; it holds with probability at least 1 - ``delta``.

    Examples
    --------
    The bridge of the paper, which needs some :math:`10^8` episodes in practice:

    >>> from entropic_bpi import theory
    >>> bridge = dict(n_states=8, n_actions=2, horizon=7, eps=0.2, delta=0.1, max_return=5)
    >>> for form in ("verified", "implicit"):
    ...     print(form, f"{theory.upper_bound(**bridge, beta=2.5, form=form):.1e}")
    verified 6.6e+32
    implicit 3.8e+19
    >>> f"{theory.upper_bound(**bridge, beta=0.0, form='implicit'):.1e}"
    '5.3e+13'
    """
    bounds = {"verified": _log_verified, "implicit": _log_implicit, "printed": _log_printed}
    checks.check_choice("form", form, bounds)
    sizes = {"n_states": n_states, "n_actions": n_actions, "horizon": horizon}
    n_states, n_actions, horizon = (checks.check_integer(*size) for size in sizes.items())
    beta, eps = checks.check_finite("beta", beta), checks.check_positive("eps", eps)
    delta, max_return = checks.check_probability("delta", delta), checks.check_positive("max_return", max_return)
    largest = _check_return(max_return, horizon, "the horizon, since rewards lie in [0, 1]")
    check_exponent(beta, max(horizon + 1, eps))
    if form != "implicit" and beta == 0:
        raise InvalidProblemError(f"form={form!r} needs beta != 0: it has no limit at 0; form='implicit' has one")
    log_sah = math.log(n_states) + math.log(n_actions) + math.log(horizon)
    confidence = math.log(3) + log_sah - math.log(delta)
    return _result(bounds[form](n_states, horizon, beta, eps, largest, log_sah, confidence), log)


def _log_verified(
    n_states: int, horizon: int, beta: float, eps: float, largest: float, log_sah: float, confidence: float
) -> float:
    b = abs(beta)
    log_kappa = math.log(b) + _log_excess(b, eps) - 2 * b * eps - math.log(2)
    log_c = 9 * math.log(10) + (2 * math.log(b) + _log_spread(b, largest) + log_sah) / 2 - log_kappa
    log_d = 10 * math.log(10) + b * (horizon + 1) + log_sah + math.log(horizon) - log_kappa
    log_both = logaddexp(log_c, log_d)
    log_c1 = math.log(1.6 * (math.log(11) + 2 * _LOG_8E + math.log(confidence + n_states) + 2 * log_both))
    slow = 2 * log_c + math.log(confidence + 1)
    fast = logaddexp(log_d, math.log(2) + log_d / 2 + log_c) + math.log(confidence + n_states)
    return logaddexp(0.0, logaddexp(slow, fast) + 2 * log_c1)


def _log_implicit(
    n_states: int, horizon: int, beta: float, eps: float, largest: float, log_sah: float, confidence: float
) -> float:
    """Compute the log of the largest root of (K), to which log τ ← log F(τ) decreases; (K) is divided by b."""
    b = abs(beta)
    log_range = _log_excess(b, horizon) - (0.0 if beta >= 0 else b * (horizon - largest))
    common = (horizon - 1) * math.log1p(5 / horizon + 2 / horizon**2) - (_log_excess(b, eps) - b * eps)
    first = common + math.log(8 * math.sqrt(2)) + (_log_spread(b, largest) - math.log(4) + math.log(16) + log_sah) / 2
    second = common + math.log(53 * horizon) + log_range + math.log(16) + log_sah

    def image(log_tau: float) -> float:
        log_log = math.log(logaddexp(0.0, log_tau))
        scalar, vector = confidence + _LOG_8E + log_tau, confidence + n_states * (_LOG_8E + log_tau)
        return logaddexp(first + (log_tau + math.log(scalar) + log_log) / 2, second + math.log(vector) + log_log)

    log_tau = 60 * math.log(10)
    while image(log_tau) >= log_tau:
        log_tau *= 2
    while True:
        following = image(log_tau)
        if not following < log_tau - 1e-14 * abs(log_tau):
            return log_tau
        log_tau = following


def _log_printed(
    n_states: int, horizon: int, beta: float, eps: float, largest: float, log_sah: float, confidence: float
) -> float:
    b = abs(beta)
    limit = 2 / (b * horizon * n_states)
    if eps > limit * (1 + _ROUNDING):
        raise InvalidProblemError(f"form='printed' supposes eps <= 2/(|beta| H S) = {limit:.6g}, got {eps:g}")
    log_q1 = math.log(b) + _log_excess(b, eps)
    inner = math.log(4) + 17 + math.log(n_states + 1) + math.log(horizon + 1) + b * horizon
    inner += log_sah + math.log(horizon) - log_q1
    log_c2 = math.log(2765) + 22 + math.log(inner)
    rate = 2 * max(0.0, beta) * eps + 2 * math.log(b) + _log_spread(b, largest) - 2 * log_q1
    return rate + log_sah + math.log(confidence) + 2 * log_c2


# -- logarithms of small and large numbers -------------------------------------------------------------------


def _log_excess(b: float, x: float) -> float:
    """Compute log((e^{bx} - 1)/b) for x > 0; log x at b = 0."""
    u = b * x
    if u > 1.0:
        return u + math.log1p(-math.exp(-u)) - math.log(b)
    return math.log(x) + (math.log(math.expm1(u) / u) if u > 1e-300 else 0.0)


def _eps_of_log_excess(b: float, value: float) -> float:
    """Return the x for which :func:`_log_excess` is ``value``."""
    return math.exp(value) if b == 0 else logaddexp(0.0, math.log(b) + value) / b


def _log_spread(b: float, largest: float) -> float:
    """Compute log(V_G / b²)."""
    return 2 * _log_excess(b, largest) - b * largest


def _log_lag(log_t: float, sign: float) -> float:
    """Compute log(t - log(1 + t)) at t = ``sign`` e^{log_t} > -1."""
    if log_t > 30:
        return log_t + math.log1p(-log_t * math.exp(-log_t))
    t = sign * math.exp(log_t)
    if abs(t) > 0.05:
        return math.log(t - math.log1p(t))
    series = sum((-t) ** k / (k + 2) for k in range(14))
    return 2 * log_t + math.log(series)


def _result(log_value: float, log: bool) -> float:
    if checks.check_flag("log", log):
        return float(log_value)
    return math.exp(log_value) if log_value < math.log(1.7e308) else math.inf
