"""Boxes: ball and box against other means, certificates against an adversary, the traps as mutants, and whole runs."""

import dataclasses
import math

import numpy as np
import pytest
from reference.boxes import attack, divergence, largest_mean, most_likely
from reference.kl_attack import Shape, draw

import entropic_bpi as eb
from entropic_bpi.methods.kl import boxes
from entropic_bpi.methods.kl.ball import boxed_extreme, kl_extremum
from entropic_bpi.methods.kl.boxes import EVENTS, MOST_LABELS, MOST_LAWS, least_divergence
from entropic_bpi.methods.kl.method import KL
from entropic_bpi.methods.kl.plan import _plan_small, boxes_due
from entropic_bpi.methods.kl.records import new_scratch
from entropic_bpi.methods.kl.states import PESSIMISTIC_BEST
from entropic_bpi.problem.problem import Problem

BRIDGE = eb.instances.risky_bridge()
GOAL = {"beta": 2.5, "eps": 0.2, "delta": 0.1, "successors": "model", "stationary": True}


def one_ball(rng, extreme=False):
    """Counts, a radius, and a box that meets the ball: around one of its laws, and for two outcomes inside of it."""
    k = int(rng.integers(2, 5))
    tally = rng.multinomial(int(rng.choice([3, 30, 300, 3000])), rng.dirichlet(np.full(k, 0.6)))
    n, x = tally.sum(), float(rng.choice([1e-3, 0.02, 0.2, 1.5]))
    p = tally / n
    while True:
        inside = rng.dirichlet(0.3 + 5 * p)
        share = rng.random()
        while divergence(p, share * inside + (1 - share) * p) > x:
            share *= 0.7
        q = share * inside + (1 - share) * p
        if (q > 0).all() or rng.random() < 0.3:
            break
    width = rng.choice([0.003, 0.03, 0.3]) * rng.random((2, k))
    low, high = np.maximum(q - width[0], 0), np.minimum(q + width[1], 1)
    if k == 2:
        low, high = inside_ball(tally, x, low, high)
    f = rng.normal(size=k) * (10.0 ** rng.uniform(-3, 3, k) if extreme else 1.0)
    return tally, p, x, low, high, f, q


def inside_ball(tally, x, low, high):
    """Of two outcomes the part of the box in the ball."""
    work, n = np.empty((2, 4)), tally.sum()
    ends = [[kl_extremum(tally, np.eye(2)[j], 2, n, x, sign, 1e-9, work, 0.0)[0] for j in range(2)] for sign in (-1, 1)]
    return np.maximum(low, ends[0]), np.minimum(high, ends[1])


def padded(values):
    return np.append(values, np.zeros(MOST_LABELS - len(values)))


def boxed(tally, x, low, high, f, sign=1.0):
    work = np.empty((10, MOST_LABELS))
    return boxed_extreme(tally, f, len(f), tally.sum(), x, np.stack([padded(low), padded(high)]), sign, 1e-9, work)


def clipped(tally, x, low, high, f, sign=1.0):
    """What must not be done: the optimum of the ball, cut off at the box."""
    n, work = tally.sum(), np.empty((10, MOST_LABELS))
    value, nu, _ = kl_extremum(tally, f, len(f), n, x, sign, 1e-9, work, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        q = np.where(tally > 0, tally / n * (nu - sign * value) / (nu - sign * f), 0.0) if nu < np.inf else tally / n
    q[np.argmax(sign * f)] += max(0.0, 1 - q.sum())
    q = np.clip(q, low, high)
    return float(q / q.sum() @ f)


def check_ball_and_box(bound, rng, many):
    """Every law of ball and box has a mean of at most the bound; returns how often the bound is nearly attained."""
    close = 0
    for _ in range(many):
        tally, p, x, low, high, f, q = one_ball(rng, extreme=rng.random() < 0.3)
        for sign in (1.0, -1.0):
            upper = sign * bound(tally, x, low, high, f, sign)
            found = max(largest_mean(p, sign * f, x, low, high, rng), sign * q @ f)
            scale = np.abs(f).max()
            assert found <= upper + 1e-9 * scale
            close += found >= upper - 1e-3 * np.ptp(f)
    return close


@pytest.mark.parametrize(("many", "close"), [(12, 12), pytest.param(120, 150, marks=pytest.mark.slow)])
def test_no_law_of_ball_and_box_exceeds_the_bound_which_is_nearly_attained(many, close):
    assert check_ball_and_box(boxed, np.random.default_rng(1), many) > close


def test_cutting_off_the_optimum_of_the_ball_is_no_bound():
    with pytest.raises(AssertionError):
        check_ball_and_box(clipped, np.random.default_rng(1), 120)


def test_it_is_never_above_the_bounds_of_ball_and_of_box_alone():
    rng = np.random.default_rng(2)
    for _ in range(200):
        tally, _, x, low, high, f, _ = one_ball(rng)
        ball = kl_extremum(tally, f, len(f), tally.sum(), x, 1.0, 1e-9, np.empty((2, 4)), 0.0)[0]
        assert boxed(tally, x, low, high, f) <= ball + 1e-9
        wide = np.zeros(len(f)), np.ones(len(f))
        if len(f) > 2:
            assert boxed(tally, x, *wide, f) == pytest.approx(ball, abs=1e-9)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_values_that_are_no_numbers_give_no_bound(bad):
    tally, low, high = np.array([3, 4, 5]), np.full(3, 0.1), np.full(3, 0.6)
    for sign in (1.0, -1.0):
        assert boxed(tally, 0.1, low, high, np.array([1.0, bad, 0.0]), sign) == sign * np.inf


def check_emptiness(lower_bound, rng, many):
    """A leaf may be dropped only if no law of the box is in the ball."""
    sharp = 0
    for _ in range(many):
        tally, p, _, low, high, _, _ = one_ball(rng)
        shift = rng.normal(size=len(p)) * rng.choice([0.01, 0.1])
        low, high = np.clip(low + shift, 0, 1), np.clip(high + shift, 0, 1)
        if low.sum() > 1 or high.sum() < 1:
            continue
        nearest = most_likely(p, low, high)
        found = lower_bound(tally, int(tally.sum()), padded(low), padded(high), len(p))
        smallest = divergence(p, nearest)
        assert found <= smallest + 1e-12
        sharp += found >= smallest - 1e-6
    return sharp


def test_the_divergence_of_a_box_is_bounded_from_below_and_nearly_attained():
    assert check_emptiness(least_divergence, np.random.default_rng(3), 400) > 150


def test_dropping_a_leaf_by_an_upper_bound_of_the_divergence_is_caught():
    def at_the_centre(tally, n, low, high, size):
        centre = (low + high)[:size]
        return divergence(tally / n, centre / centre.sum())

    with pytest.raises(AssertionError):
        check_emptiness(at_the_centre, np.random.default_rng(3), 400)


def test_probabilities_of_events_are_closed_under_sums():
    rng = np.random.default_rng(4)
    sums = np.array([[event >> label & 1 for label in range(MOST_LABELS)] for event in range(EVENTS)], dtype=float)
    for _ in range(100):
        laws = rng.dirichlet(np.ones(4), size=3) @ sums.T
        table = np.tile([0.0, 1.0], (EVENTS, 1))
        table[0], table[-1] = 0.0, 1.0
        for event in rng.integers(1, EVENTS - 1, size=4):
            table[event] = laws[:, event].min(), laws[:, event].max()
        before = table.copy()
        assert not boxes._close(table)
        assert (table[:, 0] >= before[:, 0]).all()
        assert (table[:, 1] <= before[:, 1]).all()
        assert (table[:, 0] <= laws.min(axis=0) + 1e-12).all()
        assert (table[:, 1] >= laws.max(axis=0) - 1e-12).all()
    table[1], table[2] = (0.6, 0.7), (0.5, 0.6)
    assert boxes._close(table)


# -- certificates and the adversary ------------------------------------------------------------------------------------

SHAPE = Shape(
    intervals=False, stationary=True, successors="model", random_start=False, horizons=(2, 3, 4, 5),
    visits=(0, 1, 3, 10, 30, 100, 1000),
)  # fmt: skip


def certified(case, rng):
    """Trees for both candidates of a case, for a gap that is somewhat smaller than that of all balls."""
    learner = KL(case.problem)
    if not len(learner.laws.number):
        return
    learner.boxed = -1
    learner.plan(case.counts, 0)
    rules = learner.rules._replace(tolerance=1e-9, same_tolerance=1e-13)
    for kind in (0, 1):
        policy = learner.plans[kind].policy.copy()
        gap = learner._given(case.counts, policy)[1][2]
        if 0 < gap < np.inf:
            tree = learner._boxes(rules, case.counts, policy, gap, gap / rng.uniform(1.02, 1.7))
            if tree is not None:
                yield learner, policy, tree


def check_attacks(first, many):
    """The largest excess of an attack over a certificate, and how often it came within 2 % of it."""
    found, close, seed = 0, 0, first
    while found < many:
        seed += 1
        rng = np.random.default_rng(seed)
        case = draw(rng, dataclasses.replace(SHAPE, exponents=(5.0, 300.0)) if seed % 4 == 0 else SHAPE)
        for learner, policy, (_, gap) in certified(case, rng):
            found += 1
            attained = attack(case.tables, case.start, policy, rng, 2)
            stated = gap * abs(learner.rules.beta)
            assert attained <= stated + 1e-9, seed
            close += attained > 0.98 * stated > 1e-6
    return close


def test_no_attack_exceeds_a_certificate():
    check_attacks(10, 30)


@pytest.mark.slow
def test_no_attack_exceeds_many_certificates():
    assert check_attacks(500_000, 2000) > 20


def test_other_candidates_in_other_leaves_are_caught(monkeypatch):
    """The candidate that is best in a leaf is not the candidate."""

    def boxes_of_any(self, rules, counts, policy, gap, eps):
        optimism, plans = self._new_plans()
        scratch, arrays = new_scratch(rules, self.problem.n_actions, 1), self._arrays(counts)

        def bound(interval):
            own = rules._replace(interval=interval)
            return _plan_small(self.frame, own, arrays, optimism, *plans, scratch, PESSIMISTIC_BEST)[2]

        search = boxes.Search(self._inputs(rules, arrays), self.laws, (optimism, plans[0]), bound)
        monkeypatch.setattr(boxes, "_look", lambda *records: _looked(*records))
        return search.tree(gap, eps)

    look = boxes._look

    def _looked(*records):
        return 0.0, look(*records)[1]  # the candidate is another one in the next leaf: nothing is given up

    monkeypatch.setattr(KL, "_boxes", boxes_of_any)
    with pytest.raises(AssertionError):
        check_attacks(10, 200)


def test_the_tree_covers_what_it_cuts():
    """Every law of the balls is in a leaf: the two parts of a cut meet at its number, and nothing else is left out."""
    result = eb.identify(BRIDGE, **GOAL, seed=3)
    cuts, open_ends = result.certificate.cuts, 1
    assert result.certificate.test == "boxes"
    for cut in cuts:
        assert open_ends > 0
        open_ends += 1 if isinstance(cut, eb.types.Cut) else -1
    assert open_ends == 0


# -- runs ----------------------------------------------------------------------------------------------------------------


def test_it_is_tried_after_a_tenth_more_episodes_and_again_about_the_same_counts():
    assert boxes_due(100, 111, 1.0, 0.1)
    assert not boxes_due(100, 109, 1.0, 0.1)
    assert boxes_due(100, 100, 1.0, 0.1)
    assert not boxes_due(100, 111, 0.1, 0.1)
    assert not boxes_due(-1, 111, 1.0, 0.1)
    assert boxes_due(100, 111, math.nan, 0.1)


def test_the_pooled_bridge_stops_three_times_earlier_and_keeps_its_promise():
    episodes = []
    for seed in range(5):
        result = eb.identify(BRIDGE, **GOAL, seed=seed)
        gap = eb.solve(BRIDGE, 2.5).value - eb.evaluate(BRIDGE, result.policy, 2.5).value
        assert gap <= result.certificate.gap <= GOAL["eps"]
        assert result.certificate.test == "boxes"
        assert eb.verify(result.certificate).ok
        episodes.append(result.episodes)
    assert np.mean(episodes) <= 1400


def test_every_plan_in_compiled_code_tries_boxes_too(tmp_path):
    goal = GOAL | {"replan": "every", "seed": 3}
    result = eb.identify(BRIDGE, **goal)
    assert result.certificate.test == "boxes"
    assert result.episodes < 1500
    half = {**goal, "checkpoint": tmp_path / "half.npz"}
    eb.identify(BRIDGE, **half, max_episodes=result.episodes // 2)
    again = eb.identify(BRIDGE, **half)
    assert again.episodes == result.episodes
    assert again.certificate.cuts == result.certificate.cuts


@pytest.mark.parametrize("changed", [{"stationary": False}, {"successors": None}])
def test_it_is_never_tried_where_no_law_may_be_cut(changed, monkeypatch):
    monkeypatch.setattr(boxes.Search, "tree", lambda *_: pytest.fail("tried"))
    eb.identify(BRIDGE, **(GOAL | changed), seed=1, max_episodes=200)


def test_certificates_of_boxes_are_saved_and_read(tmp_path):
    certificate = eb.identify(BRIDGE, **GOAL, seed=3).certificate
    certificate.save(tmp_path / "boxes.json")
    read = eb.Certificate.load(tmp_path / "boxes.json")
    assert read.cuts == certificate.cuts
    assert eb.verify(tmp_path / "boxes.json").ok
    assert not eb.verify(read, rigorous=True).ok


def test_a_given_policy_is_certified_by_the_same_cuts():
    result = eb.identify(BRIDGE, **GOAL, seed=3)
    counts = result.certificate.counts
    claim = KL(result.certificate.problem).bounds_of(counts, result.policy)
    assert claim.cuts == result.certificate.cuts
    assert claim.gap == pytest.approx(result.certificate.gap, rel=1e-12)


# -- laws of declared noise ----------------------------------------------------------------------------------------------


def coarse_and_fine():
    """Two states that use one law of three labels: in the first, two labels cannot be told apart."""

    def outcome(state, action, label):
        if state == 0:
            return (1 if label == 2 else 0) if action else (0 if label == 0 else 1)
        return (label + action) % 3

    rewards = np.array([[0.0, 0.1], [0.5, 0.4], [1.0, 0.0]])
    return eb.FiniteMDP.from_noise(
        range(3),
        range(2),
        range(3),
        [0.5, 0.3, 0.2],
        lambda s, a, w: (outcome(s, a, w), rewards[s, a]),
        horizon=6,
        start=0,
    )


def test_a_cut_says_of_a_coarser_row_what_it_implies_and_no_more():
    """The event {0} is no union of classes of a row with the classes {0, 1} and {2}."""
    problem = Problem.from_mdp(coarse_and_fine(), beta=1.0, eps=0.1, delta=0.1, noise="model")
    laws = boxes.laws_of(problem)
    arrays = problem.balls.arrays(eb.identify(coarse_and_fine(), beta=1.0, eps=0.1, delta=0.1, noise="model",
                                              seed=1, max_episodes=5).certificate.counts.arrays)  # fmt: skip
    table = np.tile([0.0, 1.0], (1, EVENTS, 1))
    table[0, 0], table[0, 7], table[0, 8] = 0.0, 1.0, 0.0
    table[0, 1] = 0.4, 0.6
    boxes._close(table[0])
    interval = boxes._intervals(problem.n_rows, laws, table, np.ones(1, dtype=np.bool_))
    for i, row in enumerate(laws.rows):
        for j in range(arrays.used[row]):
            low, high = interval[row, :, j]
            labels = int(laws.labels[i, j])
            expected = {1: (0.4, 0.6), 6: (0.4, 0.6), 3: (0.4, 1.0), 5: (0.4, 1.0)}.get(labels, (0.0, 0.6))
            assert (low, high) == pytest.approx(expected, abs=1e-12), labels


def test_runs_with_declared_noise_use_boxes_and_are_verified():
    goal = {"beta": 1.0, "eps": 0.1, "delta": 0.1, "noise": "model", "seed": 1}
    result = eb.identify(coarse_and_fine(), **goal)
    gap = eb.solve(coarse_and_fine(), 1.0).value - eb.evaluate(coarse_and_fine(), result.policy, 1.0).value
    assert gap <= result.certificate.gap <= 0.1
    assert eb.verify(result.certificate).ok
    assert result.certificate.test == "boxes"
    content = result.certificate._content()
    first = content["claim"]["cuts"][0]
    assert set(first["event"]) < {0, 1, 2}
    for event in ([], [0, 1, 2], [3], [0, 0]):
        forged = {**content, "claim": {**content["claim"], "cuts": [{**first, "event": event}, "ratio", "ratio"]}}
        assert "claim.cuts" in eb.verify(type("Stated", (), {"_content": lambda self, f=forged: f})()).problems[0]


def feasible_laws(problem, arrays, radius, parts):
    """Laws of three labels on a grid that lie in all balls."""
    grid = [(i / parts, j / parts, (parts - i - j) / parts) for i in range(parts + 1) for j in range(parts + 1 - i)]
    laws = boxes.laws_of(problem)
    for q in grid:
        images = (
            (
                row,
                [
                    sum(q[w] for w in range(3) if labels >> w & 1)
                    for labels in laws.labels[i, : arrays.used[row]].tolist()
                ],
            )
            for i, row in enumerate(laws.rows)
        )
        for row, image in images:
            n, begin = arrays.visits[row], arrays.begin[row]
            seen = arrays.tally[begin : begin + arrays.used[row]] / max(n, 1)
            if n and divergence(seen, image) > radius[row]:
                break
        else:
            yield q


def check_noise(seeds):
    """No law on a grid, in all balls, has a larger gap than a certificate; how many certificates there were."""
    found = 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        following, rewards = rng.integers(0, 3, size=(3, 2, 3)), rng.random((3, 2))

        def model(q, following=following, rewards=rewards):
            outcome = lambda s, a, w: (int(following[s, a, w]), float(rewards[s, a]))  # noqa: E731
            return eb.FiniteMDP.from_noise(range(3), range(2), range(3), q, outcome, horizon=5, start=0)

        truth, beta = rng.dirichlet(np.ones(3)), float(rng.choice([-2.0, -0.5, 0.5, 2.0]))
        goal = {"beta": beta, "delta": 0.1, "noise": "model", "seed": 1}
        result = eb.identify(model(truth), eps=1e-6, max_episodes=int(rng.choice([1, 3, 10])), **goal)
        gap = result.certificate.gap
        if not 1e-3 < gap < math.inf:
            continue
        problem = dataclasses.replace(result.certificate.problem, eps=gap / rng.uniform(1.1, 2.5))
        learner, counts = KL(problem), result.certificate.counts
        claim = learner.bounds_of(counts, result.policy)
        if claim.test != "boxes":
            continue
        found += 1
        for q in feasible_laws(problem, learner._arrays(counts), learner.rules.radius, 24):
            mdp = model(q)
            true = eb.solve(mdp, beta).value - eb.evaluate(mdp, result.policy, beta).value
            assert true <= claim.gap + 1e-9, (seed, q)
    return found


def test_no_law_of_the_noise_exceeds_a_certificate():
    assert check_noise(range(12)) >= 3


def test_a_cut_of_an_event_that_is_no_union_of_classes_is_caught(monkeypatch):
    """Trap 6: what is known of an event is taken for known of every class that has a label of it."""
    intervals = boxes._intervals

    def of_overlapping_events(rows, laws, table, cut):
        interval = intervals(rows, laws, table, cut)
        for i, (row, law) in enumerate(zip(laws.rows, laws.law, strict=True)):
            events = set(laws.labels[laws.law == law].ravel().tolist())
            for j, labels in enumerate(laws.labels[i].tolist()):
                if cut[law] and labels:
                    interval[row, 1, j] = min(table[law, event, 1] for event in events if event & labels)
        return interval

    monkeypatch.setattr(boxes, "_intervals", of_overlapping_events)
    with pytest.raises(AssertionError):
        check_noise(range(12))


def test_boxes_are_not_tried_for_many_laws():
    goal = {"beta": -1.0, "eps": 0.5, "delta": 0.1, "successors": "model", "stationary": True}
    for n_states, tried in ((MOST_LAWS // 4, True), (MOST_LAWS // 4 + 1, False)):
        mdp = eb.instances.garnet(n_states, 4, 3, horizon=3, seed=0)
        assert (KL(Problem.from_mdp(mdp, **goal)).boxed >= 0) == tried
