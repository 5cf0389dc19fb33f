// Before the first paint: the theme that was chosen here, if it is not that of the system.
try {
  const theme = localStorage.getItem("theme");
  if (theme) document.documentElement.dataset.theme = theme;
} catch {
  // Storage may be forbidden; the system's theme stays.
}
