"""Sampling parameters, their rules, and grammars. The arithmetic is the runner's."""
