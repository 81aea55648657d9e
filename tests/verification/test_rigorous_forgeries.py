"""The forgeries of the other files, for ``verify(rigorous=True)``: it refuses them all.

Most are refused by what both verifiers check. Those whose claim is too good for their counts are handed to the verifier in
ball arithmetic directly, too: it must not prove them. A sample runs by default, all of them with ``-m slow``.
"""

import copy
import re

import pytest
from test_forgeries import FORGERIES, NO_POOLED_EPISODES, honest, no_boxes, saved, verdicts
from test_verify import certified, tamperings, verify_restated

from entropic_bpi.verification import verify
from entropic_bpi.verification.rigorous import prove

__all__ = ["certified", "honest", "no_boxes"]  # fixtures

KL = ["kl per step", "kl per step, seeking", "kl anywhere", "kl pooled", "kl next state, random start"]
KL += ["kl environment", "kl next state, per step", "kl neutral"]
TOO_GOOD = re.compile("(lower|upper|gap): .* is claimed")


def sampled(names, every):
    names = list(names)
    return [name if i % every == 0 else pytest.param(name, marks=pytest.mark.slow) for i, name in enumerate(names)]


def is_refused(content, folder):
    """Whether a forgery is refused; one that only claims too much is also not proved, whatever else is checked."""
    path = saved(content, folder)
    ordinary, rigorous = verify(path), verify(path, rigorous=True)
    if ordinary.problems and all(map(TOO_GOOD.match, ordinary.problems)):
        _, problems = prove(content)
        assert problems, ordinary.problems
        assert all(map(TOO_GOOD.match, problems)), problems
    assert rigorous.proved == rigorous.ok
    return not rigorous.ok


@pytest.mark.parametrize("name", sampled(FORGERIES, 8))
def test_a_forgery_is_refused(name, honest, tmp_path):
    base, change, reason = FORGERIES[name]
    content = honest[base].content()
    change(content)
    assert is_refused(content, tmp_path)
    problems = verify(saved(content, tmp_path), rigorous=True).problems
    assert any(reason in problem for problem in problems), problems


def check_tamperings(case, folder, every):
    """Single changes of a certificate, with the assumptions that they need."""
    assert verify(case.certificate, rigorous=True).proved
    too_good = 0
    for what, change in list(tamperings(case))[::every]:
        content = copy.deepcopy(case.content)
        change(content)
        verify_restated(content, folder)
        assert is_refused(content, folder), what
        too_good += what.startswith(("claim", "policy", "problem.delta"))
    return too_good


@pytest.mark.parametrize("name", sampled(KL, 5))
def test_single_changes_are_refused(name, certified, tmp_path):
    assert check_tamperings(certified[name], tmp_path, every=17) > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", KL)
def test_all_single_changes_are_refused(name, certified, tmp_path):
    assert check_tamperings(certified[name], tmp_path, every=1) > 10


@pytest.mark.parametrize("many", [30, *(pytest.param(many, marks=pytest.mark.slow) for many in (60, 3000))])
def test_every_forgery_that_is_proved_follows_from_what_it_says_itself(many, honest, tmp_path):
    proved = 0
    for done, ok, wrong in verdicts(honest, many, tmp_path, seed=many + 1, rigorous=True):
        assert not ok or wrong in (None, NO_POOLED_EPISODES), (done, wrong)
        proved += ok
    assert proved > many / 10


def test_honest_certificates_of_all_bases_are_proved(honest, tmp_path):
    for name, base in honest.items():
        result = verify(saved(base.content(), tmp_path), rigorous=True)
        assert result.proved, (name, result.problems)
