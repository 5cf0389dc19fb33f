"""The families of the store for streams and trace notes."""
