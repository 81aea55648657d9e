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
