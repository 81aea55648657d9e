r"""
A hard instance, and how hard it is
===================================

The lower bound is proved with the following instance. An agent leaves the waiting state at one of several steps, walks
down a tree, and decides at a leaf. One combination of step, leaf and action leads to the good state slightly more often
than all the others, and only trying it can show that.
"""

import numpy as np

import entropic_bpi as eb
from entropic_bpi import plots
from entropic_bpi.model.instances.hard import hard_shape, largest_eps

sizes = {"n_states": 10, "n_actions": 2, "horizon": 9}
beta, delta = -1.0, 0.05
shape = hard_shape(**sizes)
print(shape)

places = {0: (0, 4), 3: (0, 3), 4: (-2, 2), 5: (2, 2), 6: (-3, 1), 7: (-1, 1), 8: (1, 1), 9: (3, 1)}
places |= {1: (-1.2, -0.2), 2: (1.2, -0.2)}
names = {0: "wait", 1: "good", 2: "bad", 3: "root"}
tree = [(0, 3), (3, 4), (3, 5), (4, 6), (4, 7), (5, 8), (5, 9)]

structure = plots.new_figure(6.4, 4.4)
axes = structure.subplots()


def draw_arrow(start, end, colour, width=1.0):
    style = {"arrowstyle": "-|>", "color": colour, "linewidth": width, "shrinkA": 15, "shrinkB": 15}
    axes.annotate("", places[end], places[start], arrowprops=style)


for start, end in tree:
    draw_arrow(start, end, "grey")
for leaf in range(shape.first_leaf, sizes["n_states"]):
    draw_arrow(leaf, 1, "#009E73", 2.0 if leaf == 7 else 0.7)
    draw_arrow(leaf, 2, "#D55E00", 0.7)
for state, place in places.items():
    axes.text(*place, names.get(state, f"{state}"), ha="center", va="center", fontsize=8, zorder=3)
    axes.scatter(*place, s=620, color="white", edgecolor="#009E73" if state == 7 else "grey", zorder=2)
axes.text(0.4, 4, f"leave at one of {shape.exits} steps", va="center", fontsize=8)
axes.text(-1.7, -0.2, f"pays 1 in the last {shape.paid_steps} steps", va="center", ha="right", fontsize=8)
axes.text(-4.6, 0.4, "one step, leaf, action:\nslightly better odds", va="center", fontsize=8, color="#009E73")
axes.set(xlim=(-4.7, 3.8), ylim=(-0.7, 4.5))
axes.axis("off")
axes.set_title("The hard instance with 10 states and 2 actions", fontsize="medium")

# %%
# Episodes until the default method certifies a policy of :math:`M_0`, the instance without a special combination, and
# the lower bound. Both grow like :math:`\varepsilon^{-2}`. The machine-checked constant 1/5000 is far from what the same
# proof gives before rounding.

limits = largest_eps(shape.paid_steps, beta) * np.geomspace(0.1, 0.999, 7)
instances = {eps: eb.instances.hard_instance(**sizes, beta=beta, eps=eps) for eps in limits}
took = [
    eb.identify(model, beta=beta, eps=eps, delta=delta, successors="model", seed=0).episodes
    for eps, model in instances.items()
]
comparison = plots.new_figure(6.0, 3.8)
axes = comparison.subplots()
axes.plot(limits, took, "o-", color=plots.COLOURS[0], label='episodes of method "kl" (one run each)')
for form, colour, dash in (("exact", plots.COLOURS[1], "-"), ("verified", plots.COLOURS[2], "--")):
    bound = [eb.theory.lower_bound(**sizes, beta=beta, eps=eps, delta=delta, form=form) for eps in limits]
    axes.plot(limits, bound, dash, color=colour, label=f"lower bound, form {form!r}")
axes.set(xscale="log", yscale="log", xlabel="accuracy ε", ylabel="episodes")
axes.set_title("Hard instance, β = −1, δ = 0.05", fontsize="medium")
plots.plain_numbers(axes.xaxis)
axes.legend(frameon=False, fontsize="small")
plots.tidy(axes)
