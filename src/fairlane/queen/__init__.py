"""Compatibility with Queen: the endpoints that exist for its published clients and its dashboard only.

These are streams, trace notes, series for the dashboard, maintenance modes and some parameters and options that are
ignored. Nothing else depends on this package. Without it, a broker serves Fairlane's own API.
"""
