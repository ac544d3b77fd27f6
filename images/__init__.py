"""How images are built, named and trusted."""
