"""Families that are written once for both stores.

Each is a module that calls the query runner, with its statements in a `.sql` file beside it.
"""
