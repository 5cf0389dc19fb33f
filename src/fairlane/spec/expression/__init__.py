"""Expressions, a typed subset of CEL: type inference and compilation."""
