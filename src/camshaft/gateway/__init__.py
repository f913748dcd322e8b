"""Policies over upstreams: who waits, who goes where, what is tried again, what may be asked for."""
