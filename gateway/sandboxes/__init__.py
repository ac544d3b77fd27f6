"""What a sandbox is and what may happen to it. Pure: no I/O, no clock, no environment."""
