"""Callbacks of a training: what happens besides its steps; `graphc.callbacks` is the front door."""
