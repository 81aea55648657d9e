"""Files of appraisals: the verifier accepts what follows from the counts, and nothing else."""

import json
from functools import cache

import numpy as np
import pytest

import entropic_bpi as eb
from entropic_bpi.certificate.contents import digest
from tests.reports import KINDS, certificate_of

# By default, differences are forged in these; the others are slow tests.
FEW_KINDS = ("gap certificate", "discounted", "log")
APPRAISED = [kind for kind in KINDS if kind != "random rewards"]  # which are refused
MEASURES = ["mean", "cvar 0.05", "quantile 0.1", "entropic -1", "evar 0.1", "below 0", "above 1"]


@cache
def appraisal_of(kind):
    certificate = certificate_of(kind)
    measures = [measure for measure in MEASURES if "evar" not in measure] if kind == "discounted" else MEASURES
    bins = 40 if kind in ("pair certificate", "discounted") else None
    policies = {"own": certificate.policy, "zero": 0 * certificate.policy}
    return eb.appraise(certificate, policies, measures=measures, bins=bins)


def forged(tmp_path, content):
    content = {key: value for key, value in content.items() if key != "digest"}
    path = tmp_path / "forged.json"
    path.write_text(json.dumps({**content, "digest": digest(content)}))
    return path


@pytest.mark.parametrize("kind", APPRAISED)
def test_what_follows_from_the_counts_is_accepted(kind, tmp_path):
    appraisal_of(kind).save(tmp_path / "appraisal.json.gz")
    found = eb.verify(tmp_path / "appraisal.json.gz")
    assert found.ok, found.problems


@pytest.mark.parametrize("side", ["lower", "upper"])
def test_every_number_that_says_more_is_refused(side, tmp_path):
    content = appraisal_of("gap certificate")._content()
    refused = set()
    for row in content["table"][side == "upper" :: 2]:  # every measure, of one of the two policies
        stated, inwards = row[side], 1 if side == "lower" else -1
        row[side] = stated + inwards * max(1e-6, 0.01 * (row["upper"] - row["lower"]))
        found = eb.verify(forged(tmp_path, content))
        assert not found.ok, row
        assert row["measure"] in found.problems[0]
        row[side] = stated
        refused.add(row["measure"])
    assert refused == set(MEASURES)
    assert eb.verify(forged(tmp_path, content)).ok


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[] if kind in FEW_KINDS else [pytest.mark.slow]) for kind in APPRAISED]
)
def test_every_difference_that_says_more_is_refused(kind, tmp_path):
    content = appraisal_of(kind)._content()
    stated = content["differences"]
    assert {row["measure"] for row in stated} == {"mean", "entropic -1"}
    for row in stated:
        width = row["upper"] - row["lower"]
        for side, inwards in (("lower", 1), ("upper", -1)):
            before, row[side] = row[side], row[side] + inwards * (1e-3 * width + 1e-5)
            content["differences"] = [row]
            found = eb.verify(forged(tmp_path, content))
            assert not found.ok, row
            assert found.problems[0].startswith(f"{row['measure']} of own less that of zero: at")
            row[side] = before
    content["differences"] = stated
    assert eb.verify(forged(tmp_path, content)).ok


def test_a_file_without_differences_is_read(tmp_path):
    content = appraisal_of("gap certificate")._content()
    content.pop("differences")
    assert eb.verify(forged(tmp_path, content)).ok


def changed(content, change):
    content = json.loads(json.dumps(content))
    change(content)
    return content


def swap_policies(content):
    content["policies"]["own"], content["policies"]["zero"] = content["policies"]["zero"], content["policies"]["own"]


FORGERIES = {
    "the policies are swapped": swap_policies,
    "a row is there twice": lambda c: c["table"].append(c["table"][0]),
    "a policy is unknown": lambda c: c["table"][0].update(policy="nobody"),
    "a measure is unknown": lambda c: c["table"][0].update(measure="cvar 2"),
    "a number is none": lambda c: c["table"][0].update(lower=None),
    "a policy has a wrong shape": lambda c: c["policies"].update(own=[[0]]),
    "an action is outside": lambda c: c["policies"]["own"][0].__setitem__(0, 99),
    "there is no policy": lambda c: c.update(policies={}),
    "the step is 0": lambda c: c.update(step=0.0),
    "the step is missing": lambda c: c.update(step=None),
    "the step is tiny": lambda c: c.update(step=1e-12),
    "the cells are missing": lambda c: c.update(cells=[]),
    "the cells are not in order": lambda c: c["cells"][0]["cells"].reverse(),
    "a difference has its policies swapped": lambda c: c["differences"][0].update(policy="zero", other="own"),
    "a difference is of an unknown policy": lambda c: c["differences"][0].update(other="nobody"),
    "a difference is of a policy and itself": lambda c: c["differences"][0].update(other="own", lower=0.1, upper=0.2),
    "a difference is of another measure": lambda c: c["differences"][0].update(measure="cvar 0.05"),
    "a difference is of another risk": lambda c: c["differences"][1].update(measure="entropic 1"),
    "a difference is beyond the range of floats": lambda c: c["differences"][0].update(measure="entropic 1e9"),
    "a difference is not a number": lambda c: c["differences"][0].update(lower=None),
    "a difference lacks a key": lambda c: c["differences"][0].pop("upper"),
    "the differences are none": lambda c: c.update(differences=None),
    "there is another key": lambda c: c.update(more=1),
    "a key is missing": lambda c: c.pop("cells"),
    "delta is smaller": lambda c: c["certificate"]["problem"].update(delta=0.001),
    "the counts are larger": lambda c: c["certificate"]["counts"]["times"].__setitem__(0, 10**6),
    "the certificate is none": lambda c: c.update(certificate={}),
    "the version is unknown": lambda c: c.update(version=2),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_forgeries_are_refused(name, tmp_path):
    content = changed(appraisal_of("gap certificate")._content(), FORGERIES[name])
    found = eb.verify(forged(tmp_path, content))
    assert not found.ok
    assert found.problems


def test_a_changed_file_is_refused(tmp_path):
    path = tmp_path / "appraisal.json"
    appraisal_of("gap certificate").save(path)
    path.write_text(path.read_text(encoding="utf-8").replace('"own"', '"mine"'), encoding="utf-8")
    assert "digest" in eb.verify(path).problems[0]


def test_the_library_reads_no_appraisal_as_a_certificate(tmp_path):
    appraisal_of("gap certificate").save(tmp_path / "appraisal.json")
    with pytest.raises(eb.CertificateError, match="not a certificate"):
        eb.Certificate.load(tmp_path / "appraisal.json")


def test_an_appraisal_is_not_called_proved():
    pytest.importorskip("flint")
    found = eb.verify(appraisal_of("gap certificate"), rigorous=True)
    assert not found.ok
    assert "rigorous is for certificates" in found.problems[0]


def test_random_changes_never_make_the_verifier_fail(tmp_path):
    rng, text = np.random.default_rng(0), json.dumps(appraisal_of("gap certificate")._content())
    for _ in range(30):
        at = int(rng.integers(len(text)))
        broken = text[:at] + str(rng.choice(["0", "null", "[", '"x"', "-1", "1e308"])) + text[at + 1 :]
        try:
            content = json.loads(broken)
        except ValueError:
            continue
        if isinstance(content, dict):
            eb.verify(forged(tmp_path, content))


def test_a_difference_behind_states_whose_weights_underflow_is_refused(tmp_path):
    """β·H·range is -599.9: a ratio overflows, its inverse is below every positive number, and bounds nothing.

    The one policy goes where nothing is paid, the other to three payments, by successors that are possible for both.
    """
    hub, nothing, gate, paid, idle, zero, one, first = range(8)
    kernel, possible, rewards = np.zeros((8, 3, 8)), np.zeros((8, 3, 8), bool), np.zeros((8, 3, 8))
    ways = {
        hub: (zero, one),
        gate: (one, zero),
        paid: (gate,),
        nothing: (zero,),
        idle: (hub,),
        zero: (zero,),
        one: (one,),
    }
    moves = {(s, a): to for s, to in ways.items() for a in range(3)}
    moves |= {(first, 0): (paid, nothing), (first, 1): (nothing, paid), (first, 2): (idle,)}
    for (s, a), to in moves.items():
        kernel[s, a, to[0]], possible[s, a, list(to)] = 1, True
    for s, to in ((hub, one), (gate, one), (paid, gate), (one, one)):
        rewards[s, :, to] = 1
    mdp, beta = eb.FiniteMDP(kernel, rewards, horizon=4, start=first), -599.9 / 4
    low, high = np.zeros((4, 8), int), np.zeros((4, 8), int)
    low[0, first] = 1
    truth = eb.evaluate(mdp, low, beta).value - eb.evaluate(mdp, high, beta).value
    assert truth == pytest.approx(-3.0)
    result = eb.identify(mdp, beta=beta, eps=10.0, delta=0.1, successors=possible, stationary=False, seed=1)
    path = tmp_path / "appraisal.json"
    eb.appraise(result, {"low": low, "high": high}, measures=[f"entropic {beta}"]).save(path)
    content = json.loads(path.read_text())
    told = {"measure": f"entropic {beta}", "policy": "low", "other": "high", "lower": -1.5, "upper": 10.0}
    found = eb.verify(forged(tmp_path, content | {"differences": [told]}))
    assert not found.ok
    assert "of low less that of high" in found.problems[0]
