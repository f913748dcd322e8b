"""Which sequences run, and how many tokens each gets in the next step. Integers and times only."""
