"""What the counts imply, and whether it covers what is claimed."""

from __future__ import annotations

from dataclasses import dataclass, field

from reference.verifier._claim import Claim


@dataclass(frozen=True)
class Bounds:
    """What the counts imply. ``slack`` (lower, upper, gap) is by how much a claim may differ and be called rounded."""

    lower: float
    upper: float
    gap: float
    slack: tuple[float, ...] = (0.0, 0.0, 0.0)
    problems: list[str] = field(default_factory=list)

    def not_implied(self, claim: Claim) -> list[str]:
        """The parts of the claim that go beyond the bounds."""
        lower, upper, gap = (claim.claimed[name] for name in ("lower", "upper", "gap"))
        problems = []
        if not lower <= self.lower + self.slack[0]:
            problems.append(f"lower: {lower!r} is claimed, but the counts imply only {self.lower!r}")
        if not upper >= self.upper - self.slack[1]:
            problems.append(f"upper: {upper!r} is claimed, but the counts imply only {self.upper!r}")
        if not gap >= self.gap - self.slack[2]:
            problems.append(f"gap: {gap!r} is claimed, but the counts imply only {self.gap!r}")
        if claim.reached != (gap <= claim.eps):
            problems.append(f"reached: {claim.reached} is claimed, but the gap is {gap!r} and eps is {claim.eps!r}")
        return problems
