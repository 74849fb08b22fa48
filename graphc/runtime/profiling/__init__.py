"""Where the time of a step goes: what threads record, the tables made of it, and traces."""
