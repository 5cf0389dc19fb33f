import pytest

# Asserts outside test modules tell what differed, too.
pytest.register_assert_rewrite("tests.cell_moves.machine")
