"""What the process tells of itself: metrics and log lines."""
