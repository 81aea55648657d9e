"use strict";
const search = document.getElementById("search");
if (search) {
  const lines = Array.from(document.querySelectorAll("#lines tbody tr"), (row) => [row, row.textContent.toLowerCase()]);
  search.addEventListener("input", () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let found = 0;
    for (const [row, text] of lines) {
      row.hidden = !words.every((word) => text.includes(word));
      found += !row.hidden;
    }
    document.getElementById("found").textContent = `${found} of ${lines.length} lines`;
  });
}
const slider = document.getElementById("step");
if (slider) {
  const cells = Array.from(document.querySelectorAll("#map td[data-steps]"), (cell) => [cell, JSON.parse(cell.dataset.steps)]);
  slider.addEventListener("input", () => {
    const step = Number(slider.value);
    document.getElementById("shown-step").textContent = step < 0 ? "each cell's first" : step;
    for (const [cell, steps] of cells) {
      const at = step < 0 ? Math.min(...Object.keys(steps).map(Number)) : step;
      const [colour, action, bounds] = steps[at] ?? [null, "·", "not reached along observed transitions at this step"];
      cell.className = colour === null ? "none" : `action a${colour}`;
      cell.textContent = action;
      cell.title = `state ${cell.dataset.state}, step ${at}: ${action}; ${bounds}`;
    }
  });
}
