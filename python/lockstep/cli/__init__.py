"""The command line: `lockstep`."""
