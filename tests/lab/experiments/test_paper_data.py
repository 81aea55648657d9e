"""What the documentation says about the paper's figures is what the code says about the tables that are kept with it."""

from pathlib import Path

import pytest

from entropic_bpi.lab.experiments.figures import FIGURES, PAPER, read_table, regret

DOCS = Path(__file__).parents[3] / "docs"
DATA = DOCS / "data" / "paper"
SHOWN = (*PAPER, "regret")


@pytest.mark.parametrize("name", SHOWN)
def test_the_words_in_the_docs_follow_from_the_table_in_the_docs(name):
    told = FIGURES[name].describe(read_table(DATA / name / f"{name}.csv"))
    assert (DATA / name / "README.md").read_text(encoding="utf-8") == f"# {name}\n\n{told}\n"
    page = (DOCS / "experiments.md").read_text(encoding="utf-8")
    assert f"{{include}} data/paper/{name}/README.md" in page
    assert f"{{image}} data/paper/{name}/{name}.png" in page


def test_the_overview_has_the_ends_and_the_checks_of_the_four_figures():
    overview = read_table(DATA / "regret" / "regret.csv")
    for name, beta in (("fig5", 1), ("fig6", 2), ("fig7", 3), ("fig8", 4)):
        table = read_table(DATA / name / f"{name}.csv")
        assert len(table) <= 60 * len(regret.ENTRIES)
        ends = {row["learner"]: row for row in overview if row["beta"] == beta}
        assert set(ends) == set(regret.ENTRIES)
        for last in regret.ranking(table):
            assert {key: str(ends[last["learner"]][key]) for key in last} == {key: str(last[key]) for key in last}
        for bonus in (regret.PRINTED, regret.CHECKED):
            for check in regret.claim_checks(table, bonus):
                assert ends[bonus][check.claim] == check.holds


def test_the_tables_are_at_the_size_of_the_paper():
    for name in ("fig5", "fig6", "fig7", "fig8"):
        last = regret.ranking(read_table(DATA / name / f"{name}.csv"))
        assert {row["episodes"] for row in last} == {10**7}
        assert len({row["seeds"] for row in last}) == 1
    for name in ("fig3", "fig4"):
        assert {row["seeds"] for row in read_table(DATA / name / f"{name}.csv")} == {15}
