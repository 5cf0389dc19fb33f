"""Values of streams and trace notes."""
