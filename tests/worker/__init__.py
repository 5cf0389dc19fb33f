"""Apps and workers, against a broker in a process of its own."""
