r"""
Lower and upper bounds over β and ε
===================================

The figure shows how many episodes every algorithm needs on the hard instances, and within how many the paper's algorithm
stops on any model of the same size. In their leading term both are of the order
:math:`V_G\,SAH\log(1/\delta)/(e^{|\beta|\varepsilon}-1)^2`; their constants are far apart. The lower bound exists only where
condition A allows the instances.
"""

import numpy as np

import entropic_bpi as eb
from entropic_bpi import plots
from entropic_bpi.model.instances.hard import hard_shape

sizes = {"n_states": 10, "n_actions": 2, "horizon": 12}
largest = hard_shape(**sizes).paid_steps
forms = {
    ("lower", "verified"): "lower bound, machine-checked",
    ("lower", "exact"): "lower bound, before rounding constants",
    ("upper", "implicit"): "upper bound, implicit (sharp constants)",
    ("upper", "verified"): "upper bound, machine-checked",
}


def bound(side, form, beta, eps):
    if side == "upper":
        return eb.theory.upper_bound(**sizes, beta=beta, eps=eps, delta=0.05, max_return=largest, form=form)
    if not eb.theory.condition_a(**sizes, beta=beta, eps=eps):
        return np.nan
    return eb.theory.lower_bound(**sizes, beta=beta, eps=eps, delta=0.05, form=form)


figure = plots.new_figure(7.4, 4.6)
over_beta, over_eps = figure.subplots(1, 2, sharey=True)
betas = np.concatenate([np.linspace(-3, -0.02, 90), np.linspace(0.02, 3, 90)])
epsilons = np.geomspace(0.005, 0.2, 60)
for ((side, form), label), colour in zip(forms.items(), plots.COLOURS, strict=False):
    dash = "--" if form == "verified" else "-"
    over_beta.plot(betas, [bound(side, form, beta, 0.05) for beta in betas], dash, color=colour, label=label)
    over_eps.plot(epsilons, [bound(side, form, -1.0, eps) for eps in epsilons], dash, color=colour)
over_beta.set(yscale="log", xlabel="risk parameter β (ε = 0.05)", ylabel="episodes")
over_eps.set(xscale="log", xlabel="accuracy ε (β = −1)")
plots.plain_numbers(over_eps.xaxis)
figure.suptitle("S = 10, A = 2, H = 12, δ = 0.05", fontsize="medium")
figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize="small")
for axes in (over_beta, over_eps):
    plots.tidy(axes)

# %%
# Some of the numbers, at ε = 0.05:

for side, form in forms:
    low, high = (bound(side, form, beta, 0.05) for beta in (-1.0, 1.0))
    print(f"{side} {form:9} {low:.1e} at beta = -1, {high:.1e} at beta = 1")
