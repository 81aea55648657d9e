"""The errors that the library raises on bad input: one family, each also a ``ValueError``."""

from __future__ import annotations

__all__ = ["CertificateError", "EntropicBPIError", "InvalidModelError", "InvalidProblemError"]


class EntropicBPIError(Exception):
    """Base of every error that this library raises on purpose."""


class InvalidModelError(EntropicBPIError, ValueError):
    """A model, or the file it should come from, is not a valid finite MDP."""


class InvalidProblemError(EntropicBPIError, ValueError):
    """A question about a model is ill-posed: a bad β, ε, δ, policy, option or name."""


class CertificateError(EntropicBPIError, ValueError):
    """A certificate file cannot be read or is not one of ours."""
