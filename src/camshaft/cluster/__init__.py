"""Upstreams that live elsewhere: processes of ours, other servers, outside addresses. What starts them, watches them and ends them."""
