"""Deferral: writes that the store does not take at once, as operations in the store or in the journal."""
