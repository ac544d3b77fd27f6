"""The one command line and the one-process local mode.

The only place that may import every daemon; it has no rules of its own.
"""

__version__ = "0.1.0"
