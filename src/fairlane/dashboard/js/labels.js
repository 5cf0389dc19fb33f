// The titles of columns on the cells of every table. On a phone each row is a card, and shows them.

const titlesOf = (table) => [...(table.tHead?.rows[0]?.cells ?? [])].map((cell) => cell.textContent.trim());

export const labelCells = (root) => {
  for (const table of root.querySelectorAll("table")) {
    const titles = titlesOf(table);
    for (const row of table.tBodies[0]?.rows ?? []) {
      for (const [i, cell] of [...row.cells].entries()) {
        if (cell.dataset.label !== titles[i]) cell.dataset.label = titles[i] ?? "";
      }
    }
  }
};
