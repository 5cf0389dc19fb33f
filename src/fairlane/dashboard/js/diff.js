// Line diff of two texts, based on their longest common subsequence.

const AROUND = 3;
const MOST = 4_000_000; // cells of the table; larger texts are shown as replaced

const common = (a, b) => {
  const rows = Array.from({ length: a.length + 1 }, () => new Uint32Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) rows[i][j] = a[i] === b[j] ? rows[i + 1][j + 1] + 1 : Math.max(rows[i + 1][j], rows[i][j + 1]);
  }
  return rows;
};

/** All lines: { sign: " " | "+" | "-", text }. */
const whole = (a, b) => {
  if (a.length * b.length > MOST) return [...a.map((text) => ({ sign: "-", text })), ...b.map((text) => ({ sign: "+", text }))];
  const rows = common(a, b);
  const found = [];
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      found.push({ sign: " ", text: a[i] });
      i += 1;
      j += 1;
    } else if (j >= b.length || (i < a.length && rows[i + 1][j] >= rows[i][j + 1])) found.push({ sign: "-", text: a[i++] });
    else found.push({ sign: "+", text: b[j++] });
  }
  return found;
};

/** The changed lines with some context. "…" marks unchanged lines that are left out. */
export const difference = (before, after) => {
  const lines = (text) => (text === "" ? [] : text.replace(/\n$/, "").split("\n"));
  const all = whole(lines(before), lines(after));
  const near = all.map(() => false);
  all.forEach((one, i) => {
    if (one.sign !== " ") near.fill(true, Math.max(0, i - AROUND), i + AROUND + 1);
  });
  return all.flatMap((one, i) => (near[i] ? [one] : i === 0 || near[i - 1] ? [{ sign: "…", text: "" }] : []));
};
