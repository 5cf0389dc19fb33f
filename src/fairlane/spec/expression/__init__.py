"""Expressions, a typed subset of CEL: their types, and functions made of them."""
