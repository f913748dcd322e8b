"""The KV cache's books: which blocks are free, cached or in use, and who shares them. Knows ids, never memory."""
