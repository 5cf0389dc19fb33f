"""`make campaign`: every experiment of docs/reliability.md, for hours, with one report."""
