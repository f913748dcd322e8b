"""The HTTP edge: OpenAI's API over any Upstream."""
