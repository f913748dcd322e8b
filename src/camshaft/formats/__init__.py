"""Model files: every kind is read into one ModelSpec and tensors under one set of names."""

from camshaft.formats.model import GenerationDefaults, ModelFile
from camshaft.formats.open import open_model
from camshaft.formats.vocab import Vocab, open_vocab

__all__ = ["GenerationDefaults", "ModelFile", "Vocab", "open_model", "open_vocab"]
