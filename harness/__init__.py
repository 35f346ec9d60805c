"""Running trials: configuration, life cycle, matrix, history, command line."""

__version__ = "0.1.0"
