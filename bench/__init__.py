"""Measurements of Fairlane beside yardsticks. `python bench/core.py` is the one to run."""
