"""The measurements: they run seldom, and must not rot meanwhile."""
