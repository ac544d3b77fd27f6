"""One short function per verb: gather facts, plan, record, act. Knows no HTTP and no engine."""
