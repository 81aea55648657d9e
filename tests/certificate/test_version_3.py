"""Certificates of version 3, and those of version 4 with other words, are still read and verified."""

import json
from pathlib import Path

import pytest

import entropic_bpi as eb

FOLDER = Path(__file__).with_name("version3")
KINDS = ["model", "evar", "bernstein", "environment", "log"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_certificate_of_version_3_is_read_verified_and_saved_as_version_4(kind, tmp_path):
    path = FOLDER / f"{kind}.json"
    written = json.loads(path.read_text(encoding="utf-8"))
    certificate = eb.Certificate.load(path)
    assert [certificate.lower, certificate.upper, certificate.gap] == [
        written["claim"][name] for name in ("lower", "upper", "gap")
    ]
    assert certificate.provenance.preregistration == written["circumstances"]["announcement"]
    assert eb.verify(path).ok
    certificate.save(tmp_path / "certificate.json")
    assert json.loads((tmp_path / "certificate.json").read_text(encoding="utf-8"))["version"] == 4
    assert eb.verify(tmp_path / "certificate.json").ok


@pytest.mark.parametrize("kind", KINDS)
def test_a_changed_certificate_of_version_3_is_refused(kind, tmp_path):
    content = json.loads((FOLDER / f"{kind}.json").read_text(encoding="utf-8"))
    content["circumstances"]["errors"] += 1
    (tmp_path / "changed.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(eb.CertificateError, match="digest"):
        eb.Certificate.load(tmp_path / "changed.json")
    assert not eb.verify(tmp_path / "changed.json").ok


@pytest.mark.parametrize("kind", ["model", "environment", "log"])
def test_a_certificate_of_version_4_in_earlier_words_is_read_and_verified(kind, tmp_path):
    path = Path(__file__).with_name("version4") / f"{kind}.json"
    written = json.loads(path.read_text(encoding="utf-8"))
    certificate = eb.Certificate.load(path)
    assert eb.verify(path).ok
    again = certificate._content()
    written["provenance"]["accepted"] = []  # a key that these files lack
    written["provenance"]["rewards"] = written["claim"]["cuts"] = None
    later = ("noise", "allowed", "reward", "explored", "state_labels", "action_labels", "unit", "title")
    written["problem"] |= dict.fromkeys(later)
    written["counts"]["labels"] = []
    assert (again["assumptions"] == written["assumptions"]) == (kind == "model")
    assert {**again, "assumptions": 0, "library": 0} == {
        **{key: value for key, value in written.items() if key != "digest"},
        "assumptions": 0,
        "library": 0,
    }
