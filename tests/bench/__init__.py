"""Tests of the benchmarks, which run too rarely to notice when they break."""
