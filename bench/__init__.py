"""Measurements of Fairlane beside yardsticks. `python -m bench` is the one to run."""
