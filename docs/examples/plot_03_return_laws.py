"""
What the best policies do: laws of the return
=============================================

A risk parameter is hard to feel. The law of the return is not: here are the returns of the policies that are optimal
for four values of β on the risky bridge, with their means, and the value that each β gives to its own policy. From careful
to reckless: a sure 1; mostly 2, sometimes nothing; a gamble with a lower mean; and a chance of less than one in a hundred
to win 5.
"""

import entropic_bpi as eb
from entropic_bpi import plots

bridge = eb.instances.risky_bridge(horizon=7)
betas = (-2.0, 0.0, 1.3, 2.5)

figure = plots.new_figure(7.2, 4.6)
panels = figure.subplots(2, 2, sharex=True, sharey=True)
for axes, beta, colour in zip(panels.flat, betas, plots.COLOURS, strict=False):
    best = eb.solve(bridge, beta)
    law = eb.return_law(bridge, best.policy)
    bars = axes.bar(law.support, law.probabilities, width=0.6, color=colour)
    axes.bar_label(bars, [f"{chance:.2g}" for chance in law.probabilities], fontsize="x-small", padding=1)
    axes.set_title(f"β = {beta:g}: value {best.value:.2f}, mean {law.mean:.2f}", fontsize="small")
    axes.set_ylim(0, 1.15)
    plots.tidy(axes)
figure.supxlabel("return (units of reward)", fontsize="medium")
figure.supylabel("probability", fontsize="medium")
