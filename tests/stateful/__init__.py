import pytest

# Asserts outside test modules tell what differed, too.
for module in ("agreement", "bundles", "consuming", "driver", "losses", "machine"):
    pytest.register_assert_rewrite(f"tests.stateful.{module}")
