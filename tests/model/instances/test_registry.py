"""Instances can be made by name."""

import subprocess
import sys

import pytest

import entropic_bpi as eb


def test_names():
    assert eb.instances.names() == ["risky-bridge", "hard-instance", "garnet", "river-swim"]


@pytest.mark.parametrize("name", ["risky-bridge", "risky_bridge"])
def test_hyphen_and_underscore_are_alike(name):
    assert eb.instances.make(name, horizon=9) == eb.instances.risky_bridge(9)


@pytest.mark.parametrize("name", ["bridge", "", None, 3])
def test_an_unknown_name_lists_the_known_ones(name):
    with pytest.raises(
        eb.InvalidProblemError, match=r"unknown instance .*risky-bridge, hard-instance, garnet, river-swim"
    ):
        eb.instances.make(name)


def test_an_unknown_parameter_is_refused():
    with pytest.raises(eb.InvalidProblemError, match=r"risky-bridge: .*'p_fall'; it takes horizon, p_start"):
        eb.instances.make("risky-bridge", p_fall=0.5)


def test_a_missing_parameter_is_named():
    with pytest.raises(eb.InvalidProblemError, match="garnet: missing a required argument: 'n_states'"):
        eb.instances.make("garnet")


def test_a_bad_parameter_is_refused():
    with pytest.raises(eb.InvalidProblemError, match="n_states must be at least 2"):
        eb.instances.make("river-swim", n_states=1)


def test_importing_instances_loads_neither_gymnasium_nor_numba():
    code = "import sys, entropic_bpi.model.instances; print(*{'gymnasium', 'numba'} & set(sys.modules))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == ""
