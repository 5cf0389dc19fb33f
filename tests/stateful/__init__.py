import pytest

for module in ("agreement", "bundles", "consuming", "driver", "machine"):
    pytest.register_assert_rewrite(f"tests.stateful.{module}")
