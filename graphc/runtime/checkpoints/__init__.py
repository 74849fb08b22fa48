"""Training state in files, and how a run goes on from them to the same bits."""
