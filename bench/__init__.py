"""Benchmarks of `fencepost check`: `make bench`, or `python -m bench --help`."""
