"""The numbers of the verifier satisfy the hypotheses of the machine-checked theorems; those of a wrong one do not."""

import warnings
from functools import cache
from itertools import count, islice

import numpy as np
import pytest
from hypotheses import checked
from mutants import MUTANTS, mutated
from reference.logs import ROLES, play, table
from reference.noisy import shop, walk

import entropic_bpi as eb
from entropic_bpi.verification._file import content_of
from entropic_bpi.verification.rigorous import balls

EPISODES = [1, 10, 60, 300, 2000]


def garnet(rng):
    return eb.instances.garnet(
        int(rng.integers(3, 5)), 2, 2, horizon=int(rng.integers(2, 4)), seed=int(rng.integers(10**6))
    )


def with_next_state_rewards(rng):
    kernel = rng.dirichlet(np.full(3, 0.7), (3, 2))
    start = int(rng.integers(3)) if rng.random() < 0.5 else [0.5, 0.2, 0.3]
    return eb.FiniteMDP(kernel, rng.uniform(-1, 2, (3, 2, 3)), horizon=int(rng.integers(1, 4)), start=start)


def some_beta(rng):
    return float(rng.choice([-1, 1]) * rng.choice([0.1, 0.7, 3.0]))


def run(source, rng, **options):
    if "risk" not in options:
        options["beta"] = some_beta(rng)
    budget = {"delta": 0.1, "max_episodes": int(rng.choice(EPISODES)), "seed": 0, "replan": 1.0}
    options.setdefault("eps", 1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        options.setdefault("stationary", bool(rng.integers(2)))
        return eb.identify(source, **options, **budget).certificate


def model(rng):
    return run(garnet(rng), rng, successors="model" if rng.random() < 0.5 else None)


def next_states(rng):
    return run(with_next_state_rewards(rng), rng)


def masked(rng):
    kernel, rewards, horizon = rng.dirichlet(np.full(3, 0.7), (3, 3)), rng.random((3, 3)), int(rng.integers(1, 4))
    mask = rng.random((3, 3) if rng.random() < 0.5 else (horizon, 3, 3)) < 0.6
    np.put_along_axis(mask, rng.integers(3, size=(*mask.shape[:-1], 1)), True, axis=-1)
    mdp = eb.FiniteMDP(kernel, rewards, horizon=horizon, allowed=mask)
    return run(mdp, rng, successors="model" if rng.random() < 0.5 else None)


def few(rng):
    return run(garnet(rng), rng, max_successors=2)


def environment(rng):
    mdp = garnet(rng)
    return run(eb.as_gymnasium(mdp), rng, horizon=mdp.horizon, reward_range=(0, 1))


def returns(rng):
    rewards, horizon = rng.random((3, 2)), int(rng.integers(2, 4))
    kernel = rng.dirichlet(np.full(3, 0.3), (3, 2))
    kernel[..., 0] += kernel[..., 2]  # the last state is never reached
    kernel[..., 2] = 0.0
    played = rewards[:2]
    rewards[2] = [0.0, 1.0]
    ends = (horizon * float(played.min()), horizon * float(played.max()))
    mdp = eb.FiniteMDP(kernel, rewards, horizon=horizon, start=0)
    return run(eb.as_gymnasium(mdp), rng, horizon=horizon, reward_range=(0, 1), return_range=ends)


def random_rewards(rng):
    law = str(rng.choice(["random", "random-pair"]))
    env = walk() if rng.random() < 0.5 else shop()
    return run(env, rng, horizon=int(rng.integers(1, 4)), reward_range=env.reward_range, reward_law=law)


def discounted(rng):
    mdp = garnet(rng)
    return run(mdp, rng, discount=0.3, eps=0.02, successors="model" if rng.random() < 0.5 else None)


def log(rng):
    mdp = eb.FiniteMDP(rng.dirichlet(np.full(4, 0.3), (4, 2)), rng.random((4, 2)), horizon=int(rng.integers(1, 4)))
    lines = play(mdp, int(rng.choice(EPISODES)), rng, ends=(mdp.n_states - 1,), cut=0.1)
    labels = {"states": list(range(mdp.n_states)), "actions": [0, 1]}
    seen = eb.Log.read(table(lines), **ROLES, **labels)
    return eb.certify(seen, beta=some_beta(rng), delta=0.1, horizon=mdp.horizon, reward_range=(0, 1))


def evar(rng):
    return run(garnet(rng), rng, risk=eb.EVaR(float(rng.choice([0.05, 0.5]))), eps=0.05, successors="model")


KINDS = [model, next_states, masked, few, environment, returns, random_rewards, discounted, log, evar]


def certificates(kind):
    for seed in count():
        yield kind(np.random.default_rng([seed, *kind.__name__.encode()]))


def failures(certificate):
    """What does not hold, by both certificates of the gap; at three of the λ of an entropic value at risk.

    With a declared range of returns only the bounds on values are machine-checked.
    """
    content, failed = content_of(certificate), []
    betas = [content["problem"]["beta"]]
    if content["problem"]["alpha"] is not None:
        betas = [-cell["lam"] for cell in content["claim"]["cells"]][:3]
    for beta in betas:
        for test in ("ratio", "pairs") if content["problem"]["return_range"] is None else (None,):
            failed += checked(content, beta, test)
    return failed


def check_numbers(kind, many):
    """Of doubles and of balls."""
    for certificate in islice(certificates(kind), many):
        assert failures(certificate) == []
        with balls():
            assert failures(certificate) == []


@pytest.mark.parametrize("kind", KINDS)
def test_the_numbers_of_the_verifier_pass_the_checks_of_the_proofs(kind):
    check_numbers(kind, 1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_numbers_of_500_certificates_of_each_kind_pass_the_checks_of_the_proofs(kind):
    check_numbers(kind, 500)


# -- a verifier with a mistake -----------------------------------------------------------------------------------------


@cache
def contents_for_mutants():
    """Certificates of all kinds, in the order in which they are tried."""
    kinds = [next_states, environment, model, log, few, random_rewards, returns, masked]
    return [
        certificate
        for part in zip(*(islice(certificates(kind), 6) for kind in kinds), strict=True)
        for certificate in part
    ]


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_verifier_with_a_mistake_fails_a_check_of_the_proofs(mutant):
    contents = contents_for_mutants()
    with mutated(*MUTANTS[mutant]):
        assert any(failures(certificate) for certificate in contents)
