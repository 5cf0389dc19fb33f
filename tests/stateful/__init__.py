import pytest

# Asserts outside test modules tell what differed, too.
for module in ("agreement", "consuming", "driver", "losses", "machine", "transactions"):
    pytest.register_assert_rewrite(f"tests.stateful.{module}")
