"""JSON of Queen's endpoints."""
