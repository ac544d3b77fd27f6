"""Everything at once, at random, for a long time."""
