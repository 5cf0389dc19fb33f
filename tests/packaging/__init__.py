"""Tests of the package as users install it, each in a virtual environment of its own."""
