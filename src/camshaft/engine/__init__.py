"""The engine: where decisions meet arithmetic, and a request becomes a stream of events."""
