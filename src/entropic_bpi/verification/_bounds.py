"""What the counts imply, and whether it covers what is claimed."""

from __future__ import annotations

from dataclasses import dataclass, field

from entropic_bpi.verification._claim import Claim


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
        said, slack = claim.claimed, self.slack
        implied = {
            "lower": said["lower"] <= self.lower + slack[0],
            "upper": said["upper"] >= self.upper - slack[1],
            "gap": said["gap"] >= self.gap - slack[2],
        }
        problems = [
            f"{name}: {said[name]!r} is claimed, but the counts imply only {getattr(self, name)!r}"
            for name, is_implied in implied.items()
            if not is_implied
        ]
        if claim.reached != (said["gap"] <= claim.eps):
            gap = f"the gap is {said['gap']!r} and eps is {claim.eps!r}"
            problems.append(f"reached: {claim.reached} is claimed, but {gap}")
        return problems
