"""Certificates of honest runs pass the verifier: over the whole range of β that the library accepts, and of every kind."""

from functools import cache, partial
from itertools import count, islice

import gymnasium
import numpy as np
import pytest
from reference.logs import ROLES, play, table
from reference.noisy import Noisy

import entropic_bpi as eb

EXPONENTS = {"any": (1e-7, 599.0), "large": (100.0, 599.0), "largest": (300.0, 599.0)}


def random_model(rng):
    """A small model with two states and actions at least, and rewards of the state and action or of the next state, too."""
    n_states, n_actions, horizon = (int(n) for n in rng.integers([2, 2, 1], [5, 4, 5]))
    rewards = rng.random((n_states, n_actions, n_states) if rng.random() < 0.5 else (n_states, n_actions))
    return model_with(rng, rewards if rng.random() < 0.5 else np.round(2 * rewards), horizon)


def model_with(rng, rewards, horizon):
    n_states, n_actions = rewards.shape[:2]
    kernel = rng.dirichlet(np.full(n_states, rng.choice([0.1, 0.5, 2.0])), size=(n_states, n_actions))
    kernel[kernel < 1e-6] = 0.0
    kernel /= kernel.sum(axis=-1, keepdims=True)
    if rewards.ndim == 3:
        rewards = np.repeat(rewards[None], horizon, axis=0)
    start = int(rng.integers(n_states)) if rng.random() < 0.5 else rng.dirichlet(np.ones(n_states))
    return eb.FiniteMDP(kernel, rewards, horizon=horizon, start=start)


def spread_of(mdp):
    return (mdp.reward_range[1] - mdp.reward_range[0]) * mdp.horizon


def honest_certificate(rng, exponents):
    """A run of a random small model with |β| times the range of the return drawn log-uniformly; None if refused."""
    mdp = random_model(rng)
    spread = spread_of(mdp)
    if spread == 0:
        return None
    beta = rng.choice([-1, 1]) * np.exp(rng.uniform(*np.log(exponents))) / spread
    try:
        return eb.identify(
            mdp,
            beta=float(beta),
            eps=0.05 * spread,
            delta=0.1,
            successors="model" if rng.random() < 0.5 else None,
            stationary=bool(rng.integers(2)),
            max_episodes=int(rng.choice([1, 5, 30, 300, 3000])),
            seed=0,
        ).certificate
    except eb.InvalidProblemError:  # the range counts rewards of next states that cannot follow, so it may exceed 600
        return None


def check_many(name, many):
    exponents, checked = EXPONENTS[name], 0
    for seed in range(many):
        certificate = honest_certificate(np.random.default_rng([seed, list(EXPONENTS).index(name)]), exponents)
        if certificate is not None:
            result = eb.verify(certificate)
            assert result.ok, (seed, certificate.beta, result.problems)
            checked += 1
    assert checked > 0.9 * many


@pytest.mark.parametrize("name", EXPONENTS)
def test_honest_certificates_verify(name):
    check_many(name, 30)


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPONENTS)
def test_honest_certificates_verify_in_1e4_runs(name):
    check_many(name, 3500)


@pytest.mark.parametrize("exponent", [15, 30, 100, 590])
def test_bernstein_certificates_of_long_horizons_verify(exponent):
    """The gap is the logarithm of a small difference of two large numbers."""
    for rewards in ([0.0, 1.0], [0.5, 0.9], [0.3, 0.5]):
        mdp = eb.FiniteMDP(np.full((2, 2, 2), 0.5), [rewards] * 2, horizon=40)
        options = {"constants": "sharp", "stationary": True, "eps": 1e-3, "delta": 0.1, "max_episodes": 3, "seed": 0}
        claim = eb.identify(mdp, beta=exponent / 40, method="bernstein", **options).certificate
        assert eb.verify(claim).problems == []


# -- of every kind: many certificates from the counts of few short runs ---------------------------------------------


def some_rewards(rng, shape):
    """Rewards of any size and offset; some are all equal, others a few different ones whose sums are not exact."""
    size, offset = 10.0 ** rng.integers(-3, 5), rng.choice([0.0, 0.1, -0.3, 7.1, rng.normal()])
    rewards = [np.zeros(shape), rng.random(shape), np.round(2 * rng.random(shape)) / 3][rng.integers(3)]
    return size * rewards + offset


def some_model(rng):
    """A model that may have a single state or action."""
    n_states, n_actions, horizon = (int(n) for n in rng.integers([1, 1, 1], [4, 4, 4]))
    shape = (n_states, n_actions, n_states) if rng.random() < 0.3 else (n_states, n_actions)
    return model_with(rng, some_rewards(rng, shape), horizon)


def some_laws(rng, size, shape):
    """Probabilities of which some are 0."""
    laws = rng.dirichlet(np.full(size, 0.5), size=shape)
    laws[laws < 0.2 * laws.max(axis=-1, keepdims=True)] = 0.0
    return laws / laws.sum(axis=-1, keepdims=True)


def some_environment(rng, law):
    """An environment with one or two observations, whose rewards all may come with every transition."""
    n, n_actions, n_values = (int(n) for n in rng.integers([1, 1, 1], [3, 3, 4]))
    kernel, chances = some_laws(rng, n + 1, (n + 1, n_actions)), some_laws(rng, n_values, (n + 1, n_actions, n + 1))
    kernel[n] = np.eye(n + 1)[n]
    if law == "random-pair":
        chances[:] = chances[:, :, :1]
    elif law == "fixed":
        chances = np.eye(n_values)[rng.integers(n_values, size=chances.shape[:3])]
    return Noisy(kernel, some_rewards(rng, n_values), chances)


def return_range(env, horizon):
    """The smallest and the largest return that an episode can have."""
    possible = (env.kernel[..., None] > 0) & (env.law > 0)
    ends = []
    for sign in (-1, 1):
        best = np.zeros(env.end + 1)
        for _ in range(horizon):
            best = np.where(possible, sign * env.values + best[:, None], -np.inf).max(axis=(1, 2, 3))
            best[env.end] = 0.0
        ends.append(float(sign * best[0]))
    return tuple(ends)


def some_beta(rng, spread):
    """A β of either sign, or 0; |β| times the range of the return is from 1e-9 to 590."""
    size = np.exp(rng.uniform(*np.log([1e-9, 590.0]))) / (spread or 1.0)
    return {"beta": float(size * rng.choice([-1, 1, 0], p=[0.45, 0.45, 0.1]))}


def some_level(rng, spread):
    return {"risk": eb.EVaR(float(rng.choice([1e-10, 1e-3, 0.05, 0.5, 0.99, rng.uniform(0.01, 0.99)])))}


def some_risk(rng, spread):
    return some_level(rng, spread) if rng.random() < 0.1 else some_beta(rng, spread)


def some_delta(rng):
    return float(rng.choice([0.5, 0.1, 1e-3, 1e-12, 1e-100]))


def goal(rng, spread):
    budget = {"max_episodes": int(rng.choice([1, 5, 30, 200])), "replan": 1.0, "seed": int(rng.integers(1000))}
    return {"eps": float(rng.choice([1e-3, 0.3])) * (spread or 1.0), "delta": some_delta(rng), **budget}


def and_again(rng, claim, risk_of):
    """A certificate, and more from its counts: at other risks, with other ε and δ, of the best policy or of any."""
    yield claim
    for _ in range(20):
        policy = rng.integers(claim.problem.n_actions, size=claim.policy.shape) if rng.random() < 0.5 else None
        if policy is not None and (first := int(claim.problem.artificial)) >= 0:
            policy = claim.problem.replace_forbidden(np.pad(policy, ((first, 0), (0, 0))))[first:]
        eps = claim.eps * 10.0 ** rng.uniform(-3, 3)
        yield eb.certify(claim, **risk_of(), eps=eps, delta=some_delta(rng), policy=policy)


def of_model(rng, risk_of):
    mdp = some_model(rng)
    spread = spread_of(mdp)
    options = {"successors": "model" if rng.random() < 0.5 else None, "stationary": bool(rng.integers(2))}
    if rng.random() < 0.3:
        options["max_successors"] = mdp.n_states
    claim = eb.identify(mdp, **some_beta(rng, spread), **options, **goal(rng, spread)).certificate
    yield from and_again(rng, claim, lambda: risk_of(rng, spread))


def discounted(rng):
    mdp = model_with(rng, some_rewards(rng, rng.integers(1, 4, size=2)), 1)
    gamma, size = float(rng.choice([0.1, 0.5, 0.8])), max(map(abs, mdp.reward_range)) or 1.0
    longest, eps = 2 * size / (1 - gamma), size * float(rng.choice([0.1, 2.0]))
    options = {**goal(rng, size), "eps": eps, "discount": gamma}
    claim = eb.identify(mdp, **some_beta(rng, longest), **options).certificate
    yield from and_again(rng, claim, lambda: some_beta(rng, longest))


def of_bernstein(rng):
    n_states, n_actions, horizon = (int(n) for n in rng.integers([1, 1, 1], [4, 4, 4]))
    mdp = model_with(rng, some_rewards(rng, (n_states, n_actions)), horizon)
    spread = spread_of(mdp)
    for constants in ("verified", "sharp", "printed"):
        beta = some_beta(rng, 2 * (spread + horizon))["beta"] or 1e-3 / (spread + horizon)
        options = {"constants": constants, "stationary": bool(rng.integers(2)), **goal(rng, spread)}
        yield eb.identify(mdp, beta=beta, method="bernstein", **options).certificate


def of_environment(rng, law, risk_of):
    env, horizon = some_environment(rng, law), int(rng.integers(1, 3))
    low, high = min(env.reward_range[0], 0.0) * horizon, max(env.reward_range[1], 0.0) * horizon
    options = {
        "horizon": horizon,
        "reward_range": env.reward_range,
        "reward_law": law,
        "stationary": bool(rng.integers(2)),
    }
    if rng.random() < 0.5:
        options["return_range"] = return_range(env, horizon)
    if rng.random() < 0.3:
        options["max_successors"] = env.end + 12
    if rng.random() < 0.3:
        options["max_states"] = env.end + int(rng.integers(3))
    claim = eb.identify(env, **risk_of(high - low), **options, **goal(rng, high - low)).certificate
    yield from and_again(rng, claim, lambda: risk_of(high - low))


def of_log(rng):
    mdp = model_with(rng, some_rewards(rng, rng.integers([2, 1], [4, 3])), int(rng.integers(1, 3)))
    lines = play(mdp, int(rng.choice([1, 5, 30, 200])), rng, ends=(mdp.n_states - 1,), cut=0.1)
    labels = {"states": list(range(mdp.n_states)), "actions": list(range(mdp.n_actions))}
    seen = eb.Log.read(table(lines), **ROLES, **labels)
    spread = (max(mdp.reward_range[1], 0.0) - min(mdp.reward_range[0], 0.0)) * mdp.horizon
    options = {"horizon": mdp.horizon, "reward_range": mdp.reward_range, "stationary": bool(rng.integers(2))}
    if rng.random() < 0.3:
        options["max_states"] = mdp.n_states + int(rng.integers(3))
    claim = eb.certify(seen, **some_beta(rng, spread), delta=some_delta(rng), **options)
    yield from and_again(rng, claim, lambda: some_risk(rng, spread))


class Offered(gymnasium.Wrapper):
    """Says with each observation which actions it allows."""

    def __init__(self, env, masks):
        super().__init__(env)
        self.masks = masks

    def reset(self, **options):
        observation, info = self.env.reset(**options)
        return observation, {**info, "action_mask": self.masks[observation]}

    def step(self, action):
        assert self.masks[self.env.unwrapped.state, action]
        *answer, info = self.env.step(action)
        return *answer, {**info, "action_mask": self.masks[answer[0]]}


def some_masks(rng, shape):
    masks = rng.random(shape) < 0.6
    masks[..., 0] |= ~masks.any(axis=-1)
    return masks


def with_masks(rng):
    """Of a model with masks of its own or declared ones, by both methods, and of an environment that declares or offers."""
    n_states, n_actions, horizon = (int(n) for n in rng.integers([1, 2, 1], [4, 4, 4]))
    mdp = model_with(rng, some_rewards(rng, (n_states, n_actions)), horizon)
    spread, steps = spread_of(mdp), [] if rng.random() < 0.5 else [horizon]
    options = {"stationary": bool(rng.integers(2)), "allowed": some_masks(rng, (*steps, n_states, n_actions))}
    claim = eb.identify(mdp, **some_beta(rng, spread), **options, **goal(rng, spread)).certificate
    yield from islice(and_again(rng, claim, lambda: some_risk(rng, spread)), 4)
    beta = some_beta(rng, 2 * (spread + horizon))["beta"] or 1e-3 / (spread + horizon)
    options["constants"] = str(rng.choice(["verified", "sharp"]))
    yield eb.identify(mdp, beta=beta, method="bernstein", **options, **goal(rng, spread)).certificate
    env, law = some_environment(rng, law := str(rng.choice(["fixed", "random"]))), law
    masks = some_masks(rng, (env.end, env.action_space.n))
    span = (max(env.reward_range[1], 0.0) - min(env.reward_range[0], 0.0)) * horizon
    options = {"horizon": horizon, "reward_range": env.reward_range, "reward_law": law}
    for allowed in (masks, "info"):
        beta = some_beta(rng, span)
        claim = eb.identify(Offered(env, masks), **beta, **options, **goal(rng, span), allowed=allowed).certificate
        yield from islice(and_again(rng, claim, lambda beta=beta: beta), 4)


def with_known_rewards(rng):
    """Of an environment whose rewards are declared, by a function or a table, with or without its successors."""
    env, horizon = some_environment(rng, "fixed"), int(rng.integers(1, 4))
    values = env.values[env.law.argmax(axis=-1)]  # (S + 1, A, S + 1); an end is observed in the last state
    n = env.end
    if rng.random() < 0.5:
        values[:, :, n] = values[:, :, n - 1]
    reached = env.kernel[:n] > 0
    values[:, :, n][reached.any() & (values[:, :, n] != values[:, :, n - 1])] = values[0, 0, n - 1]
    env.values, env.law = np.unique(values), np.zeros((*values.shape, len(np.unique(values))))
    env.law[..., :] = values[..., None] == env.values
    table = values[:n, :, :n].copy()
    env.law[:n, :, n] = table[:, :, n - 1][..., None] == env.values  # what is paid at the end is that of the last state
    span = (max(env.values.max(), 0.0) - min(env.values.min(), 0.0)) * horizon
    declared = {"reward": table} if rng.random() < 0.5 else {"reward": lambda s, a, y: table[s, a, y]}
    if rng.random() < 0.5:
        declared["successors"] = np.array(reached)
    options = {"horizon": horizon, "stationary": bool(rng.integers(2)), **declared}
    claim = eb.identify(env, **some_beta(rng, span), **options, **goal(rng, span)).certificate
    yield from islice(and_again(rng, claim, lambda: some_risk(rng, span)), 6)


class Mechanical(gymnasium.Env):
    """Starts in state 0 and moves by the outcome of a label, whose laws are by state and action; says the label as info."""

    def __init__(self, n_states, laws, outcomes, law_of):
        self.laws, self.outcomes, self.law_of, self.state = laws, outcomes, law_of, 0
        self.observation_space = gymnasium.spaces.Discrete(n_states)
        self.action_space = gymnasium.spaces.Discrete(law_of.shape[1])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = 0
        return self.state, {"label": 0}

    def step(self, action):
        chances = np.cumsum(self.laws[self.law_of[self.state, action]])
        label = min(int(np.searchsorted(chances, self.np_random.random(), side="right")), len(chances) - 1)
        following, reward = self.outcomes[self.state, int(action), label]
        ended = following is eb.END
        self.state = self.state if ended else following
        return self.state, reward, ended, False, {"label": label}


def some_mechanics(rng):
    """Return the number of states, laws, which of them each state and action has, and where each label leads.

    Labels are demands, moves on a line, or anything; many lead to the same state, and some rows can do one thing alone.
    """
    n_states, n_actions, n_laws = (int(n) for n in rng.integers([1, 1, 1], [5, 4, 4]))
    laws = [rng.dirichlet(np.full(size, rng.choice([0.2, 1.0]))) for size in rng.integers(1, 6, size=n_laws)]
    law_of, kind = rng.integers(n_laws, size=(n_states, n_actions)), rng.integers(3)
    following = {}
    for s, a in np.ndindex(n_states, n_actions):
        ways = rng.integers(n_states, size=3)
        for w in range(len(laws[law_of[s, a]])):
            moved = (max(min(s + a, n_states - 1) - w, 0), np.clip(s + (w - 1) * (a + 1), 0, n_states - 1), ways[w % 3])
            following[s, a, w] = int(moved[kind])
    return n_states, laws, law_of, following


def with_noise(rng):
    """Of a model with known mechanics, and of an environment whose rewards are those of its labels, or are learned."""
    (n_states, laws, law_of, following), horizon = some_mechanics(rng), int(rng.integers(1, 4))
    rewards = some_rewards(rng, (*law_of.shape, n_states))
    if rng.random() < 0.5:
        rewards[:] = rewards[:, :, :1]
    labels, names = {str(g): range(len(q)) for g, q in enumerate(laws)}, np.array([str(g) for g in range(len(laws))])
    mdp = eb.FiniteMDP.from_noise(
        range(n_states), range(law_of.shape[1]), labels, {str(g): q for g, q in enumerate(laws)},
        lambda s, a, w: (following[s, a, w], float(rewards[s, a, following[s, a, w]])),
        horizon=horizon, start=int(rng.integers(n_states)), law=lambda s, a: str(names[law_of[s, a]]),
    )  # fmt: skip
    spread = spread_of(mdp)
    claim = eb.identify(mdp, **some_beta(rng, spread), **goal(rng, spread), noise="model").certificate
    yield from islice(and_again(rng, claim, lambda: some_risk(rng, spread)), 10)
    paid = some_rewards(rng, 3)
    outcomes = {
        (s, a, w): (eb.END if rng.random() < 0.2 else y, float(paid[(w + s) % 3 if rng.random() < 0.5 else 0]))
        for (s, a, w), y in following.items()
    }
    declared, options = dict(outcomes), {"horizon": horizon}
    where = {(s, a, following): reward for (s, a, _), (following, reward) in outcomes.items()}
    if rng.random() < 0.5:  # rewards are learned, one for each next state
        outcomes = {(s, a, w): (y, where[s, a, y]) for (s, a, w), (y, _) in outcomes.items()}
        declared = {key: following for key, (following, _) in outcomes.items()}
    if rng.random() < 0.5 or declared != outcomes:
        options["reward_range"] = float(paid.min()), float(paid.max())
    if rng.random() < 0.5:
        options["start"] = 0
    seen = (lambda info, *_: info["label"]) if rng.random() < 0.3 else None
    laws_of = {(s, a): str(names[law_of[s, a]]) for s, a in np.ndindex(*law_of.shape)}
    options["noise"] = eb.Noise(labels, declared, law=laws_of, observed=seen)
    env = Mechanical(n_states, laws, outcomes, law_of)
    span = (max(*paid, 0.0) - min(*paid, 0.0)) * horizon
    claim = eb.identify(env, **some_beta(rng, span), **options, **goal(rng, span)).certificate
    yield from islice(and_again(rng, claim, lambda: some_risk(rng, span)), 10)


def some_law(rng):
    return str(rng.choice(["random", "random-pair"]))


KINDS = {
    "kl": lambda rng: of_model(rng, some_beta),
    "bernstein": of_bernstein,
    "evar": lambda rng: of_model(rng, some_level),
    "discounted": discounted,
    "environment": lambda rng: of_environment(rng, "fixed", partial(some_risk, rng)),
    # Random rewards are certified for the β of the run alone.
    "random rewards": lambda rng: of_environment(rng, some_law(rng), cache(partial(some_beta, rng))),
    "random rewards, evar": lambda rng: of_environment(rng, some_law(rng), partial(some_level, rng)),
    "log": of_log,
    "masks": with_masks,
    "known rewards": with_known_rewards,
    "noise": with_noise,
}


def honest_certificates(kind):
    for seed in count():
        try:
            yield from ((seed, claim) for claim in KINDS[kind](np.random.default_rng([seed, *kind.encode()])))
        except (
            eb.InvalidProblemError
        ) as refusal:  # an ε, or rewards of next states that cannot follow, need larger exponents
            if not any(reason in str(refusal) for reason in ("cannot be certified", "exceeds 600")):
                raise


def refused(kind, many):
    """What the verifier says against honest certificates of one kind, by seed."""
    found = islice(honest_certificates(kind), many)
    return [(seed, problems) for seed, claim in found if (problems := eb.verify(claim).problems)]


@pytest.mark.parametrize("many", [20, pytest.param(150, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
def test_no_honest_certificate_is_refused(kind, many):
    assert refused(kind, many) == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_none_of_1e4_honest_certificates_is_refused(kind):
    assert refused(kind, 10_000) == []


@pytest.mark.parametrize("beta", [1e-5, 0.1, -0.1])
def test_a_row_that_can_do_one_thing_and_was_not_visited_counts_as_such(beta):
    """An empty shop that orders nothing stays empty. The law is known from other rows, which says nothing of this one."""
    mdp = eb.FiniteMDP.from_noise(
        range(4), range(3), range(4), [0.3, 0.4, 0.2, 0.1],
        lambda s, a, w: (max(min(s + a, 3) - w, 0), float(min(min(s + a, 3), w)) - 0.5 * a),
        horizon=2, start=0,
    )  # fmt: skip
    options = {"noise": "model", "beta": 0.1, "delta": 0.1, "max_episodes": 10, "seed": 0, "replan": 1.0}
    run = eb.identify(mdp, eps=1e-6, **options).certificate
    claim = eb.certify(run, beta=beta, eps=1e-6, delta=0.5, policy=[[2, 2, 1, 0], [0, 0, 2, 0]])
    assert claim.test == "pairs"
    assert eb.verify(claim).problems == []
