"""Risk-sensitive reinforcement learning in finite MDPs, with a certificate.

Every public name is here. Modules load when a name is first used, so that importing the package stays cheap.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from entropic_bpi._gymnasium_ids import register_when_imported
from entropic_bpi._version import __version__

if TYPE_CHECKING:
    from entropic_bpi import events, experiments, instances, learners, theory
    from entropic_bpi.certificate import Certificate, certify
    from entropic_bpi.errors import CertificateError, EntropicBPIError, InvalidModelError, InvalidProblemError
    from entropic_bpi.gymnasium_env import as_gymnasium
    from entropic_bpi.identify import Identification, identify
    from entropic_bpi.instances.gymnasium_table import from_gymnasium
    from entropic_bpi.learners import Run, run
    from entropic_bpi.mdp import FiniteMDP, Rows
    from entropic_bpi.planning import (
        Evaluation,
        ReturnLaw,
        ReturnLawBracket,
        Solution,
        chi_square,
        entropic_variance,
        evaluate,
        max_return,
        return_law,
        solve,
        tilted,
    )
    from entropic_bpi.verify import Verification, verify

_HOME = {
    "CertificateError": "errors",
    "EntropicBPIError": "errors",
    "InvalidModelError": "errors",
    "InvalidProblemError": "errors",
    "as_gymnasium": "gymnasium_env",
    "Verification": "verify",
    "verify": "verify",
    "Certificate": "certificate",
    "certify": "certificate",
    "Identification": "identify",
    "identify": "identify",
    "Run": "learners",
    "run": "learners",
    "FiniteMDP": "mdp",
    "Rows": "mdp",
    "Evaluation": "planning",
    "ReturnLaw": "planning",
    "ReturnLawBracket": "planning",
    "Solution": "planning",
    "chi_square": "planning",
    "entropic_variance": "planning",
    "evaluate": "planning",
    "max_return": "planning",
    "return_law": "planning",
    "solve": "planning",
    "tilted": "planning",
    "from_gymnasium": "instances.gymnasium_table",
}
_MODULES = ("events", "experiments", "instances", "learners", "theory")

__all__ = [
    "Certificate",
    "CertificateError",
    "EntropicBPIError",
    "Evaluation",
    "FiniteMDP",
    "Identification",
    "InvalidModelError",
    "InvalidProblemError",
    "ReturnLaw",
    "ReturnLawBracket",
    "Rows",
    "Run",
    "Solution",
    "Verification",
    "__version__",
    "as_gymnasium",
    "certify",
    "chi_square",
    "entropic_variance",
    "evaluate",
    "events",
    "experiments",
    "from_gymnasium",
    "identify",
    "instances",
    "learners",
    "max_return",
    "return_law",
    "run",
    "solve",
    "theory",
    "tilted",
    "verify",
]


register_when_imported()


class _Package(ModuleType):
    """A package in which importing the module of a public function's name does not hide the function."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (isinstance(value, ModuleType) and name in _HOME):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value = import_module(f"{__name__}.{name}")
    elif name in _HOME:
        value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
