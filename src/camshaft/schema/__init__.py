"""OpenAI's wire types: what clients send, what they get, and the strict reading of it."""
