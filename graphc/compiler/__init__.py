"""The whole compiler on a few pages: driver, pipeline, cache of plans."""
