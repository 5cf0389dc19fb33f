// Applies the chosen theme before the first paint, if it differs from the system theme.
try {
  const theme = localStorage.getItem("theme");
  if (theme) document.documentElement.dataset.theme = theme;
} catch {
  // Storage may be forbidden. The system theme is used then.
}
