"""Optional dependencies: the error that names the extra to install when a library is missing."""

from __future__ import annotations

from fairlane.errors import InvalidRequest


class MissingExtra(InvalidRequest, ImportError):
    """A library of an extra is not installed."""

    code = "missing_extra"

    def __init__(self, feature: str, extra: str, library: str | None) -> None:
        super().__init__(
            f"{feature} needs the {extra} extra, which is not installed ({library} is missing): "
            f"pip install 'fairlane[{extra}]'"
        )
