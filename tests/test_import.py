"""Importing the package must stay cheap."""

import subprocess
import sys


def test_import_loads_no_heavy_library():
    script = "import sys, entropic_bpi; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert "entropic_bpi" in loaded
    assert not {"numba", "scipy", "matplotlib", "gymnasium", "duckdb", "jinja2"} & set(loaded)


def test_a_run_on_a_model_needs_no_library_for_environments_or_logs():
    script = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("duckdb", "gymnasium"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Missing())
import entropic_bpi as eb
assert eb.identify and eb.certify and eb.verify
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_modules_are_attributes_before_anybody_imports_them():
    script = "import entropic_bpi as eb; eb.plots.returns; eb.report.write; eb.theory.lower_bound"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_every_public_name_can_be_imported_and_listed():
    import entropic_bpi

    for name in entropic_bpi.__all__:
        assert getattr(entropic_bpi, name) is not None
        assert name in dir(entropic_bpi)


def test_the_research_code_loads_when_it_is_first_used():
    script = """
import sys
import entropic_bpi as eb
eb.identify, eb.certify, eb.verify
assert not any(name.startswith("entropic_bpi.lab") for name in sys.modules)
import entropic_bpi.theory
from entropic_bpi.theory import characteristic_time
assert eb.theory.characteristic_time is characteristic_time and eb.theory.lower_bound
assert not hasattr(eb.theory, "characteristic_times")
"""
    subprocess.run([sys.executable, "-c", script], check=True)
