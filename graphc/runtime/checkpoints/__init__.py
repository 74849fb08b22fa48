"""Checkpoints: the state of a training in files, from which a run resumes with the same bits."""
