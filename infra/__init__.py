"""One short program per deployable thing."""
