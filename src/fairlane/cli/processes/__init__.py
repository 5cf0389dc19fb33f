"""Parts of the processes that `fairlane serve` and `fairlane worker` run."""
