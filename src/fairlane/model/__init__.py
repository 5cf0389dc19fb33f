"""The vocabulary: frozen values, no I/O, no clock."""
