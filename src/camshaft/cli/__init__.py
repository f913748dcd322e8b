"""The command line: parse, assemble, talk to people. The only package that prints."""
