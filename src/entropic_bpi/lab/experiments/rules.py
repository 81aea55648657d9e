"""The stopping rules that are compared with each other: a method with its constants and what is declared."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["RULES", "rule_of"]

RULES: dict[str, dict[str, Any]] = {
    "paper, printed constants": {"method": "bernstein", "constants": "printed"},
    "paper, verified constants": {"method": "bernstein", "constants": "verified"},
    "paper, sharp constants": {"method": "bernstein", "constants": "sharp"},
    "KL, nothing assumed": {"method": "kl"},
    "KL, stationary": {"method": "kl", "stationary": True},
    "KL, successors known": {"method": "kl", "successors": "model"},
    "KL, both": {"method": "kl", "stationary": True, "successors": "model"},
}
_RULE_OPTIONS = ("constants", "stationary", "successors")


def rule_of(spec: str) -> str:
    """Return the name in :data:`RULES` of the rule that a recorded run used."""
    fields = json.loads(spec)
    declared = {name: value for name, value in fields["options"].items() if name in _RULE_OPTIONS}
    wanted = {"method": fields["algorithm"], **declared}
    return next(name for name, settings in RULES.items() if settings == wanted)
