"""The report of a certificate: what it says, and that nothing in it acts. In a browser: test_report_browser.py."""

import base64
import dataclasses
import hashlib
import json
import math
import re
import sys
from html.parser import HTMLParser
from importlib import resources
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from typer.testing import CliRunner

import entropic_bpi as eb
from entropic_bpi import cli
from entropic_bpi.runs.data_needs import limits
from entropic_bpi.runs.progress import RunProgress
from entropic_bpi.show.decisions import decision_of
from entropic_bpi.show.report._charts import law_of_the_return
from entropic_bpi.show.report._policy import policy_of
from entropic_bpi.show.report._returns import expected_returns
from entropic_bpi.show.words import Rounding, claim_of, probability
from entropic_bpi.show.words import number as rounded_number
from tests.reports import (
    GOAL,
    HOSTILE,
    KINDS,
    appraised,
    bridge,
    certificate_of,
    decision_page,
    forge,
    hostile_model,
    made,
    page_of,
)

SECTIONS = ["rests", "policy", "return", "gap", "limits", "check", "provenance"]


class Page(HTMLParser):
    """All tags with their attributes, the text, and what is inside scripts and styles."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.words, self.inside, self.open = [], [], {"script": [], "style": []}, None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self.open = tag if tag in self.inside else None

    def handle_endtag(self, tag):
        self.open = None

    def handle_data(self, data):
        (self.words if self.open is None else self.inside[self.open]).append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


def svg_of(source):
    return base64.b64decode(source.removeprefix("data:image/svg+xml;base64,")).decode()


def invoke(*words):
    return CliRunner().invoke(cli.app, [str(word) for word in words], prog_name="entropic-bpi")


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    bridge().save(tmp_path_factory.getbasetemp() / "model.npz")
    folder = tmp_path_factory.mktemp("run")
    options = ["--beta", -1, "--eps", 0.3, "--delta", 0.1, "--successors", "model", "--seed", 1, "--out", folder]
    done = invoke("identify", tmp_path_factory.getbasetemp() / "model.npz", *options)
    assert done.exit_code == 0, done.output
    return folder


# -- what it says ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.slow] * (i % 2)) for i, kind in enumerate(KINDS)]
)
def test_every_kind_of_certificate_has_a_report_in_the_same_order(kind):
    page, claim = Page(page_of(kind)), claim_of(certificate_of(kind))
    assert [h2["id"] for h2 in page.all("h2")] == SECTIONS
    assert claim.sentence in page.text
    assert "the counts imply the claim" in page.text
    for words in certificate_of(kind).assumptions:
        assert words[:200] in page.text
    charts = page.all("img")
    assert len(charts) == hasattr(made(kind), "history") + (expected_returns(certificate_of(kind)).cut <= 0.5)
    assert all(chart["alt"] for chart in charts)


def test_the_claim_is_one_sentence_with_its_probability():
    assert claim_of(certificate_of("gap certificate")).sentence == (
        "With probability at least 90 %, the policy is at most 0.3 worse than the best policy."
    )
    assert claim_of(certificate_of("budget spent")).sentence.startswith(
        "The target, a policy at most 0.01 worse than the best one, is not"
    )
    assert "avoids risk" in claim_of(certificate_of("gap certificate")).meaning
    assert "seeks risk" in claim_of(certificate_of("bernstein sharp")).meaning
    assert "the mean of its return" in claim_of(certificate_of("mean")).meaning
    assert "every step multiplies the weight of rewards by 0.7" in claim_of(certificate_of("discounted")).meaning
    meaning = claim_of(certificate_of("value at risk")).meaning
    assert "a lower bound on the mean return of the worst 30 % of its episodes (CVaR). It is not that mean" in meaning
    assert "a policy with the best EVaR need not have the best CVaR" in meaning
    assert "In at most 30 % of its episodes" in claim_of(certificate_of("value at risk")).bounds


def test_tests_of_the_assumptions_are_shown_where_there_are_any():
    page = Page(page_of("black box"))
    assert len(page.all("meter")) == 3
    assert "no sign of a violation" in page.text
    assert not Page(page_of("gap certificate")).all("meter")


def test_provenance_of_a_run_folder_is_whole(run_folder, tmp_path):
    done = invoke("report", run_folder, "-o", tmp_path / "report.html")
    assert done.exit_code == 0, done.output
    text = Page((tmp_path / "report.html").read_text(encoding="utf-8")).text
    file = (run_folder / "certificate.json").read_bytes()
    for words in ("seed 1", f"entropic-bpi {eb.__version__}", hashlib.sha256(file).hexdigest(), "method kl"):
        assert words in text
    assert "The certified gap fell from" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "All settings of the run" in text
    assert "delta 0.1" in text


def test_a_saved_certificate_has_the_digest_that_the_report_of_the_result_names(tmp_path):
    result = made("gap certificate")
    assert result.report(tmp_path / "report.html").ok
    result.certificate.save(tmp_path / "certificate.json")
    digest = hashlib.sha256((tmp_path / "certificate.json").read_bytes()).hexdigest()
    assert digest in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_a_declared_unit_and_title_are_shown(tmp_path):
    result = eb.identify(bridge(), **GOAL, successors="model")
    for declared, value in (("unit", "€"), ("title", "<b>A bridge</b>")):
        object.__setattr__(result.certificate.problem, declared, value)
    assert claim_of(result.certificate).sentence.endswith("the policy is at most €0.3 worse than the best policy.")
    assert result.report(tmp_path / "report.html").ok
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    page = Page(text)
    assert page.text.count("<b>A bridge</b>") == 2  # in the tab and at the top
    drawn = "".join(svg_of(chart["src"]) for chart in page.all("img"))
    assert "return of an episode (€)" in drawn
    assert "gap (€)" in drawn
    assert "gap ε = €0.3" in page.text


def test_no_line_ends_between_a_minus_sign_and_a_currency(tmp_path):
    loss = eb.FiniteMDP(np.ones((1, 2, 1)), [[-7.0, -9.0]], horizon=2, unit="€")
    both = {"less": np.zeros((2, 1), dtype=int), "more": np.ones((2, 1), dtype=int)}
    eb.appraise(loss, both).report(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "−\u2060€14" in text
    assert "−€" not in text


def test_a_packed_certificate_has_a_report(tmp_path):
    certificate_of("gap certificate").save(tmp_path / "certificate.json.gz")
    digest = hashlib.sha256((tmp_path / "certificate.json.gz").read_bytes()).hexdigest()
    for source in (tmp_path / "certificate.json.gz", tmp_path):
        assert eb.report.write(source, tmp_path / "report.html").ok
        text = Page((tmp_path / "report.html").read_text(encoding="utf-8")).text
        assert f"SHA-256 of the file {digest}" in text
        assert "entropic-bpi verify certificate.json.gz" in text


def test_without_a_history_the_report_says_why_there_is_none(tmp_path):
    assert certificate_of("gap certificate").report(tmp_path / "report.html").ok
    text = Page((tmp_path / "report.html").read_text(encoding="utf-8")).text
    assert "does not contain the history of the gap" in text


def test_a_claim_that_needs_no_episode_says_so(tmp_path):
    sure = eb.FiniteMDP(np.ones((1, 1, 1)), np.ones((1, 1)), horizon=2)
    assert eb.identify(sure, **GOAL, successors="model").report(tmp_path / "report.html").ok
    text = Page((tmp_path / "report.html").read_text(encoding="utf-8")).text
    assert "No episode was needed" in text
    assert "The gap is 0." in text


# -- appraisals --------------------------------------------------------------------------------------------------


def test_the_page_of_an_appraisal_begins_with_the_decision(tmp_path):
    page = Page(decision_page())
    told = decision_of(appraised())
    assert [h2["id"] for h2 in page.all("h2")] == ["measures", "policies", "rests", "gap", "check", "provenance"]
    assert page.text.index(told.sentence) < page.text.index("What to expect of each policy")
    for words in told.advice:
        assert words in page.text
    for row in told.rows:
        assert " ".join(row) in page.text
    assert "best by the estimates" not in page.text
    assert "the smallest was" in decision_page()


def test_the_decision_shows_no_rounding_errors():
    bridge = eb.instances.risky_bridge(horizon=7)
    run = eb.identify(bridge, beta=-1.0, eps=2.0, delta=0.1, successors="model", seed=1)
    appraisal = eb.appraise(run, {"bold": np.ones_like(run.policy)}, measures=["quantile 0.05"])
    assert -1e-7 < appraisal.table[0]["lower"] < 0
    assert "earns at least 0 in 95 % of the episodes" in decision_of(appraisal).sentence


def test_no_line_breaks_before_a_per_cent_sign():
    assert "With probability at least 90\u00a0%, the policy" in page_of("gap certificate")


def test_a_false_appraisal_is_red_and_says_nothing_else(tmp_path):
    appraisal = appraised()
    table = [dict(row, lower=row["upper"]) for row in appraisal.table]
    page = tmp_path / "page.html"
    assert not dataclasses.replace(appraisal, table=table).report(page).ok
    text = Page(page.read_text(encoding="utf-8")).text
    assert "NOT VERIFIED: do not rely on this appraisal." in text
    assert "What to expect" not in text


def test_an_exploration_has_a_report_of_its_promise(tmp_path):
    words = "--betas -1 1 --eps 0.5 --delta 0.1 --successors model --stationary --seed 1 -p horizon=3 --out"
    done = invoke("explore", "risky-bridge", *words.split(), tmp_path / "run")
    assert done.exit_code == 0, done.output
    assert invoke("report", tmp_path / "run", "-o", tmp_path / "folder.html").exit_code == 0
    certificate = eb.Certificate.load(tmp_path / "run" / "certificate.json")
    certificate.report(tmp_path / "file.html")
    for file, sections in (("folder", ["rests", "promise", "gap"]), ("file", ["rests", "promise"])):
        page = Page((tmp_path / f"{file}.html").read_text(encoding="utf-8"))
        assert [h2["id"] for h2 in page.all("h2")] == [*sections, "check", "provenance"]
        assert claim_of(certificate).sentence in page.text
        assert all(words in page.text for words in certificate.assumptions)
        assert "The policy" not in page.text
    assert "action" not in Page(certificate._repr_html_()).text


def test_an_exploration_in_memory_has_the_same_report_and_says_if_the_target_is_not_reached(tmp_path):
    found = eb.explore(bridge(), eps=0.01, delta=0.1, betas=(-1, 1), max_episodes=20, seed=1)
    assert eb.report.write(found, tmp_path / "page.html").ok
    page = Page((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert page.all("header") == [{"class": "open"}]
    assert "The target is not reached ·" in page.text
    assert "seed 1" in page.text


def test_one_line_needs_no_search_box(tmp_path):
    sure = eb.FiniteMDP(np.ones((1, 1, 1)), np.ones((1, 1)), horizon=2)
    eb.identify(sure, **GOAL, successors="model").report(tmp_path / "report.html")
    assert "Search" not in (tmp_path / "report.html").read_text(encoding="utf-8")


# -- numbers -----------------------------------------------------------------------------------------------------


@given(st.floats(-1e12, 1e12), st.sampled_from([1e-6, 1.0, 7.0, 1e5]))
def test_rounded_bounds_stay_on_their_side(bound, spread):
    to, dust = Rounding(spread), 1e-9 * spread

    def number(text):
        return float(text.replace("−", "-").replace(",", ""))

    assert bound - max(1.001e-2 * abs(bound), dust) <= number(to.at_least(bound)) <= bound + dust
    assert bound - dust <= number(to.at_most(bound)) <= bound + max(1.001e-2 * abs(bound), dust)


@given(st.floats(1e-12, 1, exclude_max=True))
def test_the_probability_is_never_more_than_it_is(delta):
    shown = float(probability(delta).removesuffix(" %")) / 100
    assert 1 - 1.1 * delta - 1e-15 <= shown <= 1 - delta + 1e-15


def test_bounds_that_say_nothing_are_not_numbers():
    assert Rounding(1.0).at_most(math.nan) == Rounding(0.0).at_most(math.inf) == "infinity"
    assert Rounding(1.0).at_least(math.nan) == Rounding(0.0).at_least(-math.inf) == "−infinity"


@given(st.floats(-1e9, 1e9))
def test_numbers_have_three_digits(value):
    shown = float(rounded_number(value).replace(",", ""))
    assert shown == float(f"{value:.3g}") or abs(shown - value) <= 5.01e-3 * abs(value)


def empirical_law(certificate):
    """The law of the return in the empirical model of a certificate with a known start, path by path."""
    problem, seen = certificate.problem, certificate.transitions
    rows = {}
    for row, successor, times in zip(seen.rows.tolist(), seen.successors.tolist(), seen.times.tolist(), strict=True):
        rows.setdefault(row, {})[successor] = times
    paths = {(problem.start, 0.0): 1.0}
    for h in range(problem.horizon):
        after = {}
        for (s, paid), mass in paths.items():
            a = int(certificate.policy[h, s])
            earned = paid + problem.factors[h] * problem.rewards[h if len(problem.rewards) > 1 else 0, s, a]
            row = ((0 if problem.stationary else h * problem.n_states) + s) * problem.n_actions + a
            total = sum(rows[row].values())
            for to, times in rows[row].items():
                after[to, earned] = after.get((to, earned), 0.0) + mass * times / total
        paths = after
    law = {}
    for (_, paid), mass in paths.items():
        law[round(paid, 9)] = law.get(round(paid, 9), 0.0) + mass
    return law


@pytest.mark.parametrize("kind", ["gap certificate", "pair certificate", "discounted", "hostile names"])
def test_expected_returns_have_the_law_of_the_empirical_model(kind):
    expected, law = expected_returns(certificate_of(kind)), empirical_law(certificate_of(kind))
    values, times = np.unique(expected.returns.round(9), return_counts=True)
    assert set(values.tolist()) <= set(law)
    for value, mass in law.items():
        share = dict(zip(values.tolist(), times / len(expected.returns), strict=True)).get(value, 0.0)
        assert abs(share - mass) <= 5 * math.sqrt(mass * (1 - mass) / len(expected.returns)) + 1e-12
    assert expected.cut == 0


def test_random_rewards_are_paid_as_often_as_they_were_seen():
    certificate = certificate_of("random rewards")
    seen = certificate.transitions
    won = seen.times[seen.rewards == 1].sum() / seen.times[seen.successors == certificate.problem.n_states - 1].sum()
    returns = expected_returns(certificate).returns
    assert set(returns.tolist()) == {0.0, 1.0}
    assert abs(returns.mean() - won) < 0.1


def test_there_is_no_estimate_where_most_episodes_come_to_what_is_not_known():
    assert expected_returns(certificate_of("no episode")).cut == 1
    assert "There is no estimate of the return" in Page(page_of("no episode")).text


def test_what_limits_the_gap_is_what_missing_finds():
    certificate = certificate_of("budget spent")
    falls = {(row.step, row.state, row.action): row.gap_reduction for row in eb.missing(certificate).rows}
    found = limits(certificate)
    assert found
    for row in found:
        assert row.gap_reduction == pytest.approx(falls[row.step, row.state, row.action])


# -- the policy --------------------------------------------------------------------------------------------------


def test_the_table_has_the_policy_and_the_bounds_of_the_start():
    certificate = certificate_of("gap certificate")
    policy, to = policy_of(certificate), Rounding.of(certificate)
    first = policy.lines[0]
    assert (first.state, first.action.name) == ("s0", "safe")
    assert first.lower == to.at_least(certificate.lower)
    assert first.upper == to.at_most(certificate.upper)


def number(text):
    return float(text.replace("−", "-").replace(",", ""))


# Nearly always back to the same state: of the value at step 0, a sixth is left at step 5.
LOOP = eb.FiniteMDP([[[0.999, 0.001], [0.1, 0.9]], [[0.0, 1.0]] * 2], [[1.0, 0.2], [0.0, 0.0]], horizon=6)


@pytest.mark.parametrize("mdp", [LOOP, eb.instances.river_swim(n_states=3, horizon=6)])
def test_the_bounds_of_a_line_hold_at_each_of_its_steps(mdp):
    certificate = eb.identify(mdp, **GOAL | {"eps": 0.5}, successors="model").certificate
    mine = eb.evaluate(mdp, certificate.policy, certificate.beta).values
    best = eb.solve(mdp, certificate.beta).values
    visits = np.bincount(certificate.transitions.rows, certificate.transitions.times, certificate.problem.n_rows)
    visits = visits.reshape(mdp.horizon, mdp.n_states, mdp.n_actions)
    lines = policy_of(certificate).lines
    assert any("–" in line.steps for line in lines)
    for line in lines:
        first, _, last = line.steps.partition("–")
        steps, s = range(int(first), int(last or first) + 1), mdp.state_names.index(line.state)
        assert number(line.lower) <= min(mine[steps, s])
        assert max(best[steps, s]) <= number(line.upper)
        assert line.visits == visits[steps, s, mdp.action_names.index(line.action.name)].sum()


@pytest.mark.parametrize("kind", ["bernstein sharp", "value at risk"])
def test_claims_without_bounds_of_places_say_so(kind):
    assert not policy_of(certificate_of(kind)).bounded
    assert "The claim is about the start alone" in Page(page_of(kind)).text


# -- nothing acts ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_holds_all_it_needs_and_allows_nothing_else(kind):
    text = page_of(kind)
    page = Page(text)
    (policy,) = (meta["content"] for meta in page.all("meta") if meta.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'")
    for tag, kept in (("script", page.inside["script"]), ("style", page.inside["style"])):
        digest = base64.b64encode(hashlib.sha256("".join(kept).encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
        assert len(page.all(tag)) == 1
    links = {value for _, attributes in page.tags for name, value in attributes.items() if name in ("href", "src")}
    assert {link for link in links if not link.startswith("data:image/svg+xml;base64,")} == {"#policy"}
    assert "img-src data:;" in policy
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on") or name == "style"]
    assert {url for url in re.findall(r"https?://[\w./]+", text) if "www.w3.org" not in url} == set()
    assert len(text) < 400_000


def test_hostile_names_are_text_and_short():
    text = page_of("hostile names")
    page = Page(text)
    assert HOSTILE[0] in page.text
    assert "{{ 7 * 7 }}" in page.text
    for chart in page.all("img"):
        ElementTree.fromstring(svg_of(chart["src"]))
        assert "script" not in Page(svg_of(chart["src"])).tags
    assert "\u202e" not in text
    assert "x" * 100 not in text
    card = Page(eb.report.summary_html(made("hostile names")) + eb.report.summary_html(hostile_model()))
    assert not card.all("script") + card.all("img")
    assert HOSTILE[0] in card.text


def test_lines_that_do_not_fit_are_counted(monkeypatch):
    monkeypatch.setattr("entropic_bpi.show.report._policy._MOST_LINES", 2)
    policy = policy_of(certificate_of("gap certificate"))
    assert (len(policy.lines), policy.left_out > 0) == (2, True)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "start"), [(1500, None), (100_000, 0)])
def test_a_report_about_many_states_stays_small(tmp_path, n, start):
    stay, back = sparse.eye(n, format="csr"), sparse.csr_matrix(sparse.eye(n, format="csr")[::-1])
    mdp = eb.FiniteMDP(
        [stay, (stay + back) / 2],
        np.linspace([0, 0], [1, 1], n),
        horizon=2,
        start=np.full(n, 1 / n) if start is None else start,
        state_names=[f"{i}" + "<script>alert(1)</script>" * 9 for i in range(n)],
    )
    options = GOAL | {"eps": 1e-6, "stationary": True, "replan": 1.0, "max_episodes": 20_000}
    options["successors"] = None if start is None else "model"
    certificate = eb.identify(mdp, **options).certificate
    assert certificate.report(tmp_path / "report.html").ok
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert len(page) < 500_000
    assert len(Page(page).all("script")) == 1
    assert ("more lines do not fit this page" in page) == (start is None)


# -- certificates that do not verify -----------------------------------------------------------------------------


def test_a_false_claim_is_red_at_the_top_and_exits_1(tmp_path):
    path = forge(certificate_of("budget spent"), tmp_path / "forged.json", lower=1.9)
    done = invoke("report", path, "-o", tmp_path / "report.html")
    assert done.exit_code == 1
    assert "NOT verified" in done.output
    page = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert page.all("header") == [{"class": "failed"}]
    top = page.text.index("NOT VERIFIED: do not rely on this certificate.")
    assert top < page.text.index("The file does not support its claim")
    assert [h2["id"] for h2 in page.all("h2")] == [
        "check",
        "provenance",
    ]  # what follows from a false claim is not shown
    assert "lower: 1.9 is claimed, but the counts imply only" in page.text
    assert "NOT passed" in page.text
    told = json.loads(invoke("report", path, "-o", tmp_path / "report.html", "--json").output)
    assert told["ok"] is False
    assert told["problems"]


def test_a_file_that_is_no_certificate_is_red_at_the_top_and_exits_1(tmp_path):
    for content in ("{}", "<script>alert(1)</script>", ""):
        (tmp_path / "certificate.json").write_text(content)
        done = invoke("report", tmp_path / "certificate.json", "-o", tmp_path / "report.html")
        assert done.exit_code == 1, done.output
        page = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
        assert "This file is not a sound certificate." in page.text
        assert len(page.all("script")) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["{tmp}/none.json", "-o", "{tmp}/r.html"], "no such file"),
        (["{run}", "-o", "{run}/certificate.json"], "--out must be an .html file"),
        (["{run}", "-o", "{tmp}/none/r.html"], "No such file or directory"),
    ],
)
def test_bad_input_is_one_line_and_exits_2(run_folder, tmp_path, words, message):
    done = invoke("report", *(word.format(tmp=tmp_path, run=run_folder) for word in words))
    assert done.exit_code == 2
    assert message in done.output
    assert done.output.count("\n") == 1


def test_a_history_that_is_none_is_refused(run_folder, tmp_path):
    for file in ("certificate.json", "checkpoint.bin"):
        (tmp_path / file).write_bytes((run_folder / file).read_bytes())
    (tmp_path / "history.csv").write_text("episodes,gap\n1,2\n")
    done = invoke("report", tmp_path, "-o", tmp_path / "report.html")
    assert done.exit_code == 2
    assert "is not the history of a run" in done.output


def test_only_results_and_certificates_have_reports(tmp_path):
    with pytest.raises(
        eb.InvalidProblemError, match="a report needs the result of identify or appraise, a certificate or the path"
    ):
        eb.report.write(3, tmp_path / "report.html")


def test_the_templates_are_part_of_the_package():
    for file in ("page.html", "page.css", "page.js"):
        assert resources.files("entropic_bpi.show.report").joinpath(file).is_file()


# -- charts ------------------------------------------------------------------------------------------------------


def test_charts_have_a_bar_for_each_return_and_the_certified_interval():
    certificate = certificate_of("gap certificate")
    chart = law_of_the_return(certificate, expected_returns(certificate))
    svg = svg_of(chart.source)
    assert len(set(re.findall(r'id="patch_\d+"', svg))) >= len(empirical_law(certificate)) + 1
    assert "certified interval of the value" in svg
    assert chart.words.startswith("Estimated returns: mean ")
    assert law_of_the_return(certificate, expected_returns(certificate)) == chart


# -- notebooks ---------------------------------------------------------------------------------------------------


def test_notebooks_show_the_short_form():
    for thing, words in [
        (made("gap certificate"), "With probability at least 90 %, the policy is at most 0.3 worse"),
        (certificate_of("budget spent"), "Not certified: do not rely on this policy"),
        (made("gap certificate"), "seed 1"),
        (eb.solve(bridge(), -1.0), "Solution(beta=-1.0, value="),
        (eb.missing(certificate_of("budget spent"), rows=3), "the certified gap is"),
        (eb.verify(certificate_of("gap certificate")), "The counts imply the claim."),
        (eb.Verification(False, *[math.nan] * 3, problems=["<b>wrong</b>"]), "NOT verified. <b>wrong</b>"),
    ]:
        assert words in Page(thing._repr_html_()).text


def test_notebooks_show_the_text_of_what_claims_nothing():
    forecast = eb.forecast(bridge(), beta=-1.0, eps=0.5, delta=0.1, seed=1, trial_episodes=100)
    card = Page(forecast._repr_html_()).text
    assert all(str(one) in card for one in forecast.declarations)


def test_a_notebook_shows_a_log():
    lines = {"e": [0, 0, 1], "t": [0, 1, 0], "s": ["<i>", "b", "<i>"], "a": [0, 1, 1], "r": [0.0, 1.0, 2.0]}
    lines["end"] = [False, True, True]
    columns = {"episode": "e", "step": "t", "state": "s", "action": "a", "reward": "r"}
    log = eb.Log.read(pandas.DataFrame(lines), **columns, terminated="end")
    card = Page(log._repr_html_()).text
    assert "Log(2 episodes, 3 lines, 2 states, 2 actions)" in card


def test_progress_in_a_notebook_is_a_bar_that_is_redrawn_in_place(monkeypatch, capsys):
    shell = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=object()))
    monkeypatch.setitem(sys.modules, "IPython", shell)
    monkeypatch.setattr("entropic_bpi.runs.progress._REFRESH_SECONDS", 0.0)
    with RunProgress(True, eps=0.1) as line:
        for episodes, gap in [(0, math.inf), (1, 10.0), (100, 1.0), (10_000, 0.1)]:
            line.update_run(episodes, gap, lambda: None)
    shown = capsys.readouterr().err.split("\r")[1:-2]
    assert [text.count("━") for text in shown] == [0, 0, 10, 20]
    assert "10,000 episodes · gap 0.1 (goal 0.1)" in shown[-1]
