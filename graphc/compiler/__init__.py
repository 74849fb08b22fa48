"""The compiler: from a module to a plan. Its driver, the lists of passes, and the plan cache."""
