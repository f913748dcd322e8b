"""Model files: every kind is read into one ModelSpec and tensors under one set of names."""
