"""Instruments: what this machine can do, what the engine makes of it, and whether its answers hold still."""
