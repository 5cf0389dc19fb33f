"""Client programs of the systems to compare with. Each runs in its own environment and prints its results as JSON."""
