"""Benchmarks of Fairlane beside other systems and the limits of the machine. Run `python -m bench`."""
