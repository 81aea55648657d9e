"""The errors that the library raises on bad input: one family, each also a ``ValueError``."""

from __future__ import annotations

from typing import Any

__all__ = ["CertificateError", "EntropicBPIError", "InvalidModelError", "InvalidProblemError"]


class EntropicBPIError(Exception):
    """Base of every error that this library raises on purpose."""


class InvalidModelError(EntropicBPIError, ValueError):
    """A model, or the file it should come from, is not a valid finite MDP."""


class InvalidProblemError(EntropicBPIError, ValueError):
    """A question about a model is ill-posed: a bad β, ε, δ, policy, option or name; or a source contradicts what is assumed.

    ``counts`` has what a run had played when it ended in this error, the episodes of the failed batch excepted; None if
    nothing was played. It is there to be looked at: a claim from it would ignore what ended the run.
    """

    counts: Any = None


class CertificateError(EntropicBPIError, ValueError):
    """A certificate file cannot be read or is not one of ours."""
