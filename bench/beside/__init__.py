"""What bench/peers.py measures, and with what: peers in environments of their own, ourselves, a round's tasks, the lines to hold."""
