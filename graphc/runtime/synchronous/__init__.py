"""Steps that all devices make together."""
