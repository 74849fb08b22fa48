"""The passes: `Graph -> Graph`, one file each; `pipeline` lists them in order."""
