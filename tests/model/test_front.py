"""The front of a known model, against all policies of small ones and closed forms."""

import itertools
import json
import math

import numpy as np
import pytest
from scipy import optimize
from typer.testing import CliRunner

import entropic_bpi as eb
from entropic_bpi.cli import app

BRIDGE = eb.instances.risky_bridge(horizon=7)


@pytest.fixture(scope="module")
def bridge_front():
    return eb.front(BRIDGE, betas=(-2, 2.5))


def small_model(seed):
    rng = np.random.default_rng(seed)
    kernel = rng.dirichlet(np.full(3, 0.4), size=(3, 2))
    rewards = rng.normal(size=(3, 2, 3)).round(1) * rng.choice([0.3, 1.0, 5.0]) + rng.choice([0.0, -2.0])
    return eb.FiniteMDP(kernel, np.broadcast_to(rewards, (2, 3, 2, 3)).copy(), horizon=2)


def laws_of_all_policies(mdp):
    shape = (mdp.horizon, mdp.n_states)
    for actions in itertools.product(range(mdp.n_actions), repeat=math.prod(shape)):
        yield eb.return_law(mdp, np.array(actions).reshape(shape))


class TestFront:
    def test_the_breakpoints_of_the_bridge_are_the_known_ones(self, bridge_front):
        np.testing.assert_allclose(bridge_front.breakpoints, [-math.log(3), 1.005053, 1.602890, 1.896689], atol=1e-6)
        assert len(bridge_front.policies) == 5

    def test_at_a_breakpoint_two_policies_attain_the_stated_value(self, bridge_front):
        neighbours = itertools.pairwise(bridge_front.policies)
        for beta, value, pair in zip(bridge_front.breakpoints, bridge_front.values[1:-1], neighbours, strict=True):
            for policy in pair:
                assert eb.evaluate(BRIDGE, policy, beta).value == pytest.approx(value, abs=1e-10)
            assert eb.solve(BRIDGE, beta).value == pytest.approx(value, abs=1e-12)

    @pytest.mark.parametrize("seed", range(3))
    def test_nowhere_is_any_policy_better_by_more_than_the_tolerance(self, seed):
        """Against the best of all policies, at β between and at the breakpoints."""
        mdp, (low, high), tol = small_model(seed), (-4.0, 3.0), 1e-5
        found = eb.front(mdp, betas=(low, high), tol=tol)
        laws, room = list(laws_of_all_policies(mdp)), tol * (eb.max_return(mdp) + 40) + 1e-9
        assert (np.diff(found.betas) > 0).all()
        for i, policy in enumerate(found.policies):
            for beta in np.linspace(found.betas[i], found.betas[i + 1], 9):
                best = max(law.entropic_risk(beta) for law in laws)
                assert eb.evaluate(mdp, policy, beta).value >= best - room

    @pytest.mark.parametrize("seed", range(3))
    def test_it_has_every_policy_that_is_best_somewhere_on_a_fine_grid(self, seed):
        mdp = small_model(seed)
        found, laws = eb.front(mdp, betas=(-4.0, 3.0)), list(laws_of_all_policies(mdp))
        grid = np.linspace(-4.0, 3.0, 141)
        risks = np.array([[law.entropic_risk(beta) for beta in grid] for law in laws])
        best = risks.max(axis=0)
        own = [[law.entropic_risk(beta) for beta in grid] for law in found.laws]
        np.testing.assert_allclose(np.max(own, axis=0), best, atol=1e-6 * 40)
        interval = np.searchsorted(found.breakpoints, grid)
        np.testing.assert_allclose(np.array(own)[interval, np.arange(len(grid))], best, atol=1e-6 * 40)

    def test_the_second_order_bound_holds(self):
        """|β| times what a policy lacks, between two β, for all policies of small models."""
        for seed in range(8):
            mdp = small_model(100 + seed)
            laws = list(laws_of_all_policies(mdp))
            spread = max(law.support[-1] for law in laws) - min(law.support[0] for law in laws)
            rng = np.random.default_rng(seed)
            for sign in (-1, 1):
                a, b = np.sort(sign * rng.uniform(0.01, 4, size=2) / spread)
                betas = np.linspace(a, b, 11)
                risks = np.array([[law.entropic_risk(beta) for beta in betas] for law in laws])
                lacks = np.abs(betas) * (risks.max(axis=0) - risks)
                bound = np.maximum(lacks[:, 0], lacks[:, -1]) + spread**2 * (b - a) ** 2 / 32
                assert (lacks <= bound[:, None] + 1e-12).all()

    def test_the_table_is_that_of_the_laws_of_the_returns(self, bridge_front):
        for row, policy in zip(bridge_front.table(0.3), bridge_front.policies, strict=True):
            law = eb.return_law(BRIDGE, policy)
            assert row.mean == law.mean
            assert row.std == math.sqrt(law.variance)
            assert (row.var, row.cvar, row.evar) == (law.quantile(0.3), law.cvar(0.3), law.evar(0.3))
            assert row.evar <= row.cvar + 1e-12 <= row.var + 2e-12

    def test_one_policy_has_no_breakpoints(self):
        mdp = eb.FiniteMDP(np.full((2, 1, 2), 0.5), [[0.0], [1.0]], horizon=3)
        found = eb.front(mdp, betas=(-1, 1))
        assert len(found.policies) == 1
        assert found.breakpoints.size == 0
        certain = eb.FiniteMDP(np.ones((1, 2, 1)), [[1.0, 1.0]], horizon=3)
        assert eb.front(certain, betas=(-1, 1)).values.tolist() == [3.0, 3.0]

    def test_bad_arguments_are_named(self):
        with pytest.raises(eb.InvalidProblemError, match="betas must be finite with low <= high"):
            eb.front(BRIDGE, betas=(2, 1))
        with pytest.raises(eb.InvalidProblemError, match="use a larger tol"):
            eb.front(BRIDGE, betas=(0, 1e9))


class TestReturnLaw:
    @pytest.mark.parametrize("alpha", [0.01, 0.2, 0.7])
    def test_evar_is_what_an_optimiser_finds_and_at_most_cvar(self, bridge_front, alpha):
        for law in bridge_front.laws:

            def loss(log_lam, law=law):
                lam = np.exp(log_lam)
                mean = law.probabilities @ np.exp(-lam * (law.support - law.support[0]))
                return (np.log(mean) - math.log(alpha)) / lam - law.support[0]

            pieces = itertools.pairwise(np.linspace(-12, 8, 11))
            found = max(-optimize.minimize_scalar(loss, bounds=piece, method="bounded").fun for piece in pieces)
            assert law.evar(alpha) == pytest.approx(max(found, law.support[0]), abs=2e-3)
            assert law.evar(alpha) >= found - 1e-9
            assert law.cvar(alpha) >= law.evar(alpha) - 1e-12


class TestCommandLine:
    def test_it_prints_the_front_and_its_json(self, tmp_path):
        arguments = ["front", "risky-bridge", "--betas", "-2", "2.5", "--tol", "1e-4"]
        shown = CliRunner().invoke(app, arguments)
        assert shown.exit_code == 0
        assert "-1.09861 to 1.00505" in shown.output
        picture = tmp_path / "front.png"
        result = CliRunner().invoke(app, [*arguments, "--json", "--plot", str(picture)])
        content = json.loads(result.output)
        np.testing.assert_allclose(content["breakpoints"], [-math.log(3), 1.005053, 1.602890, 1.896689], atol=1e-6)
        assert [row["mean"] for row in content["rows"]] == pytest.approx([1.0, 1.5, 0.75, 0.2, 0.0375])
        assert picture.read_bytes().startswith(b"\x89PNG")
