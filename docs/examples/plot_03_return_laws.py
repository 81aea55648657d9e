"""
Laws of the return of the best policies
=======================================

The law of the return is easier to understand than a risk parameter. The figure shows the laws for the policies that are
optimal for four values of β on the risky bridge, with their means and values. With growing β, the return is 1 for certain;
usually 2 and sometimes 0; a gamble with a lower mean; and 5 with a probability of less than 1 %.
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
