"""The text of specs: source, syntax tree, parser, formatter."""
