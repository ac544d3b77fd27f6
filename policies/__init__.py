"""What a rule means: pure functions from a rule and a fact to a decision with a reason."""
